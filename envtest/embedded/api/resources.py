"""The resources that the API server serves: names, kinds, scopes, subresources and verbs."""

from __future__ import annotations

from dataclasses import dataclass

VERSION = "v1"
"""The version that all resources are served in."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_STATUS_VERBS = ("get", "patch", "update")
_KINDS_OF_OTHERS = {
    "Eviction": ("policy", "v1"),
    "Scale": ("autoscaling", "v1"),
}
"""The kinds of subresources that are of another group than their resource."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource. ``subresources`` maps the name of each to the kind that it takes and its verbs.

    ``without_effect`` says why objects of the resource, though stored, have no effect in this cluster; it is
    empty where they have.
    """

    group: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    without_effect: str = ""
    version: str = VERSION

    @property
    def singular(self) -> str:
        """The name that kubectl takes for one object: ``pod``."""
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        """The kind of a list of objects."""
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> tuple[str, str]:
        """Where the objects are stored: group and name."""
        return self.group, self.plural

    def group_version_of(self, kind: str) -> tuple[str, str]:
        """Group and version of the kind that the resource or one of its subresources takes."""
        return _KINDS_OF_OTHERS.get(kind, (self.group, self.version))

    @property
    def qualified_name(self) -> str:
        """As messages name it: ``pods`` or ``resourceclaims.resource.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def verbs_of(self, subresource: str) -> tuple[str, ...]:
        """The verbs of a subresource, or of the resource for the empty name; none where there is none."""
        if not subresource:
            return self.verbs
        return next((verbs for name, _, verbs in self.subresources if name == subresource), ())

    def kind_of(self, subresource: str) -> str:
        """The kind that a subresource takes; that of the resource for the empty name."""
        return next((kind for name, kind, _ in self.subresources if name == subresource), self.kind)

    def has(self, subresource: str) -> bool:
        """Whether it has this subresource; the empty name is the resource itself."""
        return not subresource or any(name == subresource for name, _, _ in self.subresources)


def _status(kind: str) -> tuple[str, str, tuple[str, ...]]:
    return ("status", kind, _STATUS_VERBS)


def _answered_only(group: str, *kinds: str) -> list[Resource]:
    """Resources of one group that are only created, and stored nowhere: the answer is what was asked."""
    return [Resource(group, f"{kind.lower()}s", kind, namespaced=False, verbs=("create",)) for kind in kinds]


_NO_CONTROLLER = "no pods are made of it"
_NO_NETWORK = "nothing is routed to pods"
_DRA = "resource.k8s.io"
_SCALE = ("scale", "Scale", _STATUS_VERBS)

RESOURCES: tuple[Resource, ...] = (
    Resource("", "configmaps", "ConfigMap", short_names=("cm",)),
    Resource("", "endpoints", "Endpoints", short_names=("ep",), without_effect=_NO_NETWORK),
    Resource("", "events", "Event", short_names=("ev",)),
    Resource(
        "",
        "limitranges",
        "LimitRange",
        short_names=("limits",),
        without_effect="no default or limit of it reaches a pod",
    ),
    Resource(
        "",
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        # Kubernetes deletes namespaces one by one only.
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        subresources=(("finalize", "Namespace", ("update",)), _status("Namespace")),
    ),
    Resource("", "nodes", "Node", namespaced=False, short_names=("no",), subresources=(_status("Node"),)),
    Resource(
        "",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=(_status("PersistentVolumeClaim"),),
        without_effect="no volume is bound to it, and pods run without",
    ),
    Resource(
        "",
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=(
            ("binding", "Binding", ("create",)),
            ("eviction", "Eviction", ("create",)),
            ("log", "Pod", ("get",)),
            ("proxy", "PodProxyOptions", ("get",)),
            _status("Pod"),
        ),
    ),
    Resource(
        "",
        "resourcequotas",
        "ResourceQuota",
        short_names=("quota",),
        subresources=(_status("ResourceQuota"),),
    ),
    Resource("", "secrets", "Secret"),
    Resource(
        "",
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        subresources=(_status("Service"),),
        without_effect="it has no address, and nothing is routed to pods",
    ),
    Resource(
        "",
        "serviceaccounts",
        "ServiceAccount",
        short_names=("sa",),
    ),
    *(
        Resource(
            "admissionregistration.k8s.io",
            plural,
            kind,
            namespaced=False,
            categories=("api-extensions",),
            without_effect="no write is refused because of it",
        )
        for plural, kind in (
            ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
            ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
            ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        )
    ),
    Resource(
        "apps",
        "daemonsets",
        "DaemonSet",
        short_names=("ds",),
        categories=("all",),
        subresources=(_status("DaemonSet"),),
        without_effect=_NO_CONTROLLER,
    ),
    Resource(
        "apps",
        "deployments",
        "Deployment",
        short_names=("deploy",),
        categories=("all",),
        subresources=(_SCALE, _status("Deployment")),
    ),
    Resource(
        "apps",
        "replicasets",
        "ReplicaSet",
        short_names=("rs",),
        categories=("all",),
        subresources=(_SCALE, _status("ReplicaSet")),
    ),
    Resource(
        "apps",
        "statefulsets",
        "StatefulSet",
        short_names=("sts",),
        categories=("all",),
        subresources=(_SCALE, _status("StatefulSet")),
        without_effect=_NO_CONTROLLER,
    ),
    *_answered_only("authorization.k8s.io", "SelfSubjectAccessReview", "SubjectAccessReview"),
    Resource("batch", "jobs", "Job", categories=("all",), subresources=(_status("Job"),)),
    Resource("coordination.k8s.io", "leases", "Lease"),
    Resource("discovery.k8s.io", "endpointslices", "EndpointSlice", without_effect=_NO_NETWORK),
    Resource(
        "networking.k8s.io",
        "networkpolicies",
        "NetworkPolicy",
        short_names=("netpol",),
        without_effect="no connection is refused",
    ),
    Resource(
        "node.k8s.io",
        "runtimeclasses",
        "RuntimeClass",
        namespaced=False,
        without_effect="pods may name it, and run as without one",
    ),
    Resource(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=(_status("PodDisruptionBudget"),),
    ),
    *(
        Resource("rbac.authorization.k8s.io", f"{kind.lower()}s", kind, namespaced=kind.startswith("Role"))
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    ),
    Resource("scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)),
    Resource(_DRA, "deviceclasses", "DeviceClass", namespaced=False),
    Resource(
        _DRA,
        "devicetaintrules",
        "DeviceTaintRule",
        namespaced=False,
        subresources=(_status("DeviceTaintRule"),),
    ),
    Resource(_DRA, "resourceclaims", "ResourceClaim", subresources=(_status("ResourceClaim"),)),
    Resource(_DRA, "resourceclaimtemplates", "ResourceClaimTemplate"),
    Resource(_DRA, "resourceslices", "ResourceSlice", namespaced=False),
)


_BY_NAME = {(one.group, one.version, one.plural): one for one in RESOURCES}
_BY_KIND = {(one.api_version, one.kind): one for one in RESOURCES}

GROUPS = tuple(sorted({resource.group for resource in RESOURCES if resource.group}))
"""The named API groups."""


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """The served resource of that name, None for an unknown one."""
    return _BY_NAME.get((group, version, plural))


def resource_of_kind(api_version: str, kind: str) -> Resource | None:
    """The served resource of that kind, None for an unknown one."""
    return _BY_KIND.get((api_version, kind))


def of_group(group: str) -> tuple[Resource, ...]:
    """The resources of a group, in the order that discovery has them."""
    return tuple(sorted((one for one in RESOURCES if one.group == group), key=lambda one: one.plural))
