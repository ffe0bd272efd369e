"""A DaemonSet or a StatefulSet on an embedded cluster, and what became of its pods."""

from __future__ import annotations

from typing import Any

from envtest.client import paths
from envtest.client.waiting import wait_for, wait_for_list
from envtest.embedded.cluster import EmbeddedCluster
from envtest.embedded.control.workloads.revisions import POD_LABEL

Object = dict[str, Any]


def template(version: str = "1", *, runs: bool = True, **spec: Any) -> Object:
    """A template whose pods run, or wait for a ConfigMap that is never made."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sleep", "infinity"],
        "env": [{"name": "VERSION", "value": version}],
        "envFrom": [] if runs else [{"configMapRef": {"name": "never-made"}}],
    }
    body = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"metadata": {"labels": {"app": "set"}}, "spec": body}


class RunningSet:
    """One workload in a namespace of its own."""

    def __init__(self, cluster: EmbeddedCluster, namespace: str, kind: str, **spec: Any) -> None:
        self.api = cluster.api
        self.namespace = namespace
        self._head = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "set"}}
        self.path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s/set"
        self._spec = {"selector": {"matchLabels": {"app": "set"}}, "template": template(), **spec}
        self.api.create({**self._head, "spec": self._spec}, namespace)

    def change(self, **spec: Any) -> None:
        self._spec |= spec
        self.api.apply({**self._head, "spec": self._spec}, self.namespace)

    def change_by_patch(self, **spec: Any) -> None:
        """Change it; None removes a field."""
        self.api.patch(self.path, {"spec": spec})

    def wait(self, **numbers: Any) -> Object:
        """Its status, once the controller has seen the last change and these are the numbers."""

        def is_so(item: Object) -> bool:
            status = item.get("status") or {}
            seen = status.get("observedGeneration") == item["metadata"]["generation"]
            return seen and all(status.get(name, 0) == number for name, number in numbers.items())

        return dict(wait_for(self.api, self.path, is_so, 20)["status"])

    def pods(self, count: int | None = None) -> list[Object]:
        """Its pods that are not deleted, sorted by name, once there are so many."""

        def is_so(pods: list[Object]) -> bool:
            return count is None or len(pods) == count

        found = wait_for_list(self.api, paths.pod(namespace=self.namespace), is_so, 20)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait_versions(self, *versions: str) -> None:
        """Wait until its pods, sorted by name, have these versions."""
        wait_for_list(
            self.api,
            paths.pod(namespace=self.namespace),
            lambda pods: [version_of(pod) for pod in pods] == list(versions),
            20,
        )

    def revisions(self) -> list[int]:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/controllerrevisions"
        return sorted(one["revision"] for one in self.api.list_objects(path))

    def events(self) -> list[str]:
        found = self.api.list_objects(paths.event(namespace=self.namespace))
        return [one["message"] for one in found if one["involvedObject"]["name"] == "set"]


def version_of(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["env"][0]["value"])


def hash_of(pod: Object) -> str:
    return str(pod["metadata"]["labels"][POD_LABEL])
