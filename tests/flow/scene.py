"""What a situation is built in: slices, classes, claims and pods of a made-up driver."""

from dataclasses import dataclass, field
from typing import Any

from tests.clusters import Object


@dataclass(slots=True)
class Scene:
    """What a situation is built in: the objects to create, in their order."""

    namespace: str
    node: str
    objects: list[Object] = field(default_factory=list)

    @property
    def driver(self) -> str:
        """The made-up driver."""
        return f"{self.namespace}.example.com"

    def add(
        self, kind: str, name: str, spec: Object, *, api_version: str = "resource.k8s.io/v1", **more: Any
    ) -> Object:
        """One more object; those with a namespace are in the scene's."""
        metadata: Object = {"name": name, **more.pop("metadata", {})}
        if kind in ("ResourceClaim", "ResourceClaimTemplate", "Pod", "ResourceQuota"):
            metadata["namespace"] = self.namespace
        made = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, **more}
        self.objects.append(made)
        return made

    def publish(
        self, *devices: Object, count: int = 1, pool: str = "", suffix: str = "", **spec: Any
    ) -> None:
        """A slice with these devices; ``count`` is how many slices the pool says it has."""
        pool = pool or f"{self.node}/{self.driver}"
        name = f"{self.namespace}-{pool.replace('/', '-')}{suffix}"
        where = {"nodeName": self.node} if not {"allNodes", "nodeSelector"} & spec.keys() else {}
        self.add(
            "ResourceSlice",
            name[:200],
            {
                "driver": self.driver,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
                **where,
                **({"devices": list(devices)} if devices else {}),
                **spec,
            },
        )

    def device_class(self, name: str = "", *selectors: str, **spec: Any) -> str:
        """A class of this driver's devices; its name."""
        name = name or self.namespace
        chosen = selectors or (f'device.driver == "{self.driver}"',)
        self.add("DeviceClass", name, {"selectors": [{"cel": {"expression": one}} for one in chosen], **spec})
        return name

    def claim(self, name: str, *requests: Object, **devices: Any) -> str:
        """A claim; its name."""
        self.add("ResourceClaim", name, {"devices": {"requests": list(requests), **devices}})
        return name

    def template(self, name: str, *requests: Object) -> str:
        """A claim template; its name."""
        self.add("ResourceClaimTemplate", name, {"spec": {"devices": {"requests": list(requests)}}})
        return name

    def exactly(self, name: str = "gpu", device_class: str = "", **more: Any) -> Object:
        """A request for one device of the class, unless more is said."""
        return {"name": name, "exactly": {"deviceClassName": device_class or self.namespace, **more}}

    def pod(
        self, name: str, *claims: str, template: str = "", limits: Object | None = None, **spec: Any
    ) -> Object:
        """A pod with these claims, or one of a template, or with limits."""
        entries: list[Object] = [
            {"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)
        ]
        if template:
            entries.append({"name": "own", "resourceClaimTemplateName": template})
        resources: Object = {"claims": [{"name": entry["name"]} for entry in entries]} if entries else {}
        if limits:
            resources["limits"] = limits
        container = {
            "name": "main",
            "image": "localhost/busybox:1",
            "imagePullPolicy": "Never",
            "resources": resources,
        }
        return self.add(
            "Pod",
            name,
            {
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                **({"resourceClaims": entries} if entries else {}),
                **spec,
            },
            api_version="v1",
        )

    def holder(self, name: str, *requests: Object) -> None:
        """A claim that another pod uses. The driver has no plugin, so that pod is placed and never starts."""
        self.claim(name, *requests or (self.exactly(),))
        self.pod(f"{name}-pod", name)


def device(name: str, **more: Any) -> Object:
    """A device with a model and some memory."""
    return {
        "name": name,
        "attributes": {"model": {"string": "small"}, "island": {"string": f"island-{name}"}},
        "capacity": {"memory": {"value": "40Gi"}},
        **more,
    }
