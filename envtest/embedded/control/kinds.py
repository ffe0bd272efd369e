"""The kinds of objects that the cluster's own loops read and write, and the paths of their objects."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of objects: its API group, the name of the resource in paths, and a served version.

    Objects outside of namespaces have the namespace ''.
    """

    group: str
    name: str
    version: str = "v1"

    @property
    def collection(self) -> tuple[str, str]:
        """What the store calls it."""
        return self.group, self.name

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of an object, or of a subresource of it."""
        # The core group alone is below /api.
        root = f"/apis/{self.group}/{self.version}" if self.group else "/api/v1"
        parts = (["namespaces", namespace] if namespace else []) + [self.name, name, subresource]
        return "/".join([root, *(quote(part, safe="") for part in parts if part)])


PODS = Kind("", "pods")
NODES = Kind("", "nodes")
NAMESPACES = Kind("", "namespaces")
SERVICE_ACCOUNTS = Kind("", "serviceaccounts")
CONFIG_MAPS = Kind("", "configmaps")
LEASES = Kind("coordination.k8s.io", "leases")
EVENTS = Kind("", "events")
CLAIMS = Kind("resource.k8s.io", "resourceclaims")
TEMPLATES = Kind("resource.k8s.io", "resourceclaimtemplates")
CLASSES = Kind("resource.k8s.io", "deviceclasses")
SLICES = Kind("resource.k8s.io", "resourceslices")
TAINT_RULES = Kind("resource.k8s.io", "devicetaintrules")
DEPLOYMENTS = Kind("apps", "deployments")
REPLICA_SETS = Kind("apps", "replicasets")
JOBS = Kind("batch", "jobs")
BUDGETS = Kind("policy", "poddisruptionbudgets")
