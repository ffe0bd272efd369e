"""The rights that the driver's service accounts need, and those that this command needs to look: a table."""

from __future__ import annotations

from gpuctl.doctor.outside.programs import Program
from gpuctl.doctor.outside.seen import Right

DRA = "resource.k8s.io"

NEEDED: dict[Program, tuple[Right, ...]] = {
    "controller": (
        *(Right(verb, "", "nodes") for verb in ("get", "list", "watch")),
        *(Right(verb, DRA, "resourceslices") for verb in ("list", "watch", "create", "update", "delete")),
        *(Right(verb, DRA, "resourceclaims") for verb in ("list", "watch")),
        *(Right(verb, "", "events", namespace="default") for verb in ("create", "patch")),
    ),
    "kubeletplugin": (
        Right("get", DRA, "resourceclaims"),
        Right("patch", DRA, "resourceclaims/status"),
        Right("associated-node:patch", DRA, "resourceclaims/driver", name="gpu.nvidia.com"),
        *(Right(verb, DRA, "resourceslices") for verb in ("list", "watch")),
        *(Right(verb, "", "events") for verb in ("create", "patch")),
    ),
}
"""What ``deploy/rbac.yaml`` grants, by the process whose account needs it."""

TO_LOOK = (
    Right("list", "", "nodes"),
    Right("list", "", "pods"),
    Right("list", "", "events"),
    Right("list", DRA, "resourceslices"),
    Right("list", DRA, "resourceclaims"),
    Right("list", DRA, "deviceclasses"),
    Right("list", "apps", "daemonsets"),
    Right("list", "apps", "deployments"),
    Right("list", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    Right("list", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    Right("list", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    Right("create", "authorization.k8s.io", "subjectaccessreviews"),
    Right("create", DRA, "resourceslices"),
)
"""What every check from outside needs; slices are only created in a dry run."""
