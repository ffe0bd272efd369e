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
        *(Right(verb, DRA, "resourceclaims/status") for verb in ("patch", "update")),
        *(
            Right(f"associated-node:{verb}", DRA, "resourceclaims/driver", name="gpu.nvidia.com")
            for verb in ("patch", "update")
        ),
        *(Right(verb, DRA, "resourceslices") for verb in ("list", "watch")),
        *(Right(verb, "", "events") for verb in ("create", "patch")),
    ),
    "page": (
        *(
            Right(verb, DRA, resource)
            for resource in ("resourceslices", "deviceclasses", "resourceclaims")
            for verb in ("list", "watch")
        ),
        *(
            Right(verb, "", resource)
            for resource in ("nodes", "pods", "events")
            for verb in ("list", "watch")
        ),
        Right("get", DRA, "resourceclaimtemplates"),
        Right("list", DRA, "devicetaintrules"),
        Right("list", "", "resourcequotas"),
    ),
}
"""What ``deploy/rbac.yaml`` and the chart's page grant, by the process whose account needs it."""

WHERE_IT_RUNS = frozenset({"page"})
"""The processes that a cluster may well be without: their rights are asked for where they run."""

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
