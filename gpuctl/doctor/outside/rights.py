"""Lists the rights that the driver's service accounts and this command need, and checks them."""

from __future__ import annotations

from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.programs import Program
from gpuctl.doctor.outside.seen import ClusterSeen, Right

DRA = "resource.k8s.io"

NEEDED: dict[Program, tuple[Right, ...]] = {
    "controller": (
        *(Right(verb, "", "nodes") for verb in ("get", "list", "watch")),
        *(Right(verb, DRA, "resourceslices") for verb in ("list", "watch", "create", "update", "delete")),
        *(Right(verb, "", "pods") for verb in ("list", "watch")),
        Right("get", DRA, "resourceclaims"),
        *(Right(verb, "", "events", namespace="default") for verb in ("create", "patch")),
    ),
    "kubeletplugin": (
        Right("get", DRA, "resourceclaims"),
        Right("patch", DRA, "resourceclaims/status"),
        # Since 1.36 the API server asks for this, too, for each driver whose entries in status.devices of a
        # claim are changed.
        Right("associated-node:patch", DRA, "resourceclaims/driver", name="gpu.nvidia.com"),
        *(Right(verb, DRA, "resourceslices") for verb in ("list", "watch")),
        *(Right(verb, "", "events") for verb in ("create", "patch")),
    ),
    "page": (
        *(Right("list", DRA, resource) for resource in ("resourceslices", "deviceclasses", "resourceclaims")),
        *(Right("list", "", resource) for resource in ("nodes", "pods", "events")),
        Right("get", "", "pods"),
        Right("get", DRA, "resourceclaimtemplates"),
        Right("list", DRA, "devicetaintrules"),
        Right("list", "", "resourcequotas"),
        Right("list", "policy", "poddisruptionbudgets"),
    ),
}
"""The rights that ``deploy/rbac.yaml`` and the chart's page grant, by the process that needs them."""

WHERE_IT_RUNS = frozenset({"page"})
"""The optional processes: their rights are only checked where they run."""

_ADMISSION = "admissionregistration.k8s.io"
TO_LOOK = (
    *(Right("list", "", resource) for resource in ("nodes", "pods", "events")),
    *(Right("list", DRA, resource) for resource in ("resourceslices", "resourceclaims", "deviceclasses")),
    *(Right("list", "apps", resource) for resource in ("daemonsets", "deployments")),
    Right("list", _ADMISSION, "validatingwebhookconfigurations"),
    Right("list", _ADMISSION, "validatingadmissionpolicies"),
    Right("list", _ADMISSION, "validatingadmissionpolicybindings"),
    Right("create", "authorization.k8s.io", "subjectaccessreviews"),
    Right("create", DRA, "resourceslices"),
)
"""The rights that the checks from outside need; slices are only created in a dry run."""


@check
def own_rights(seen: ClusterSeen) -> Finding:
    """Your own permissions, by SelfSubjectAccessReview.

    Never fails; warns about missing ones that the doctor needs.
    """
    # By default every authenticated user may ask for their own rights.
    missing = [str(right) for right, is_granted in require(seen.own_rights).items() if not is_granted]
    if missing:
        return warn(
            f"this user lacks {counted(len(missing), 'right')}, so some checks are skipped",
            "run it as an administrator, or have these rights granted",
            missing,
        )
    return ok("this user may read everything")


@check
def _driver_rights(seen: ClusterSeen) -> Finding:
    """The permissions of the driver's service accounts, by SubjectAccessReview.

    Fails if a process lacks one that it needs.
    """
    missing, unread = [], []
    for account, rights in sorted(seen.account_rights.items()):
        if isinstance(rights, Unread):
            unread.append(rights.why)
        else:
            missing += [f"{account} may not {right}" for right, granted in rights.items() if not granted]
    if missing:
        return fail(
            f"the driver's service accounts lack {counted(len(missing), 'right')}",
            "apply the rights that come with the driver, with the names of its service accounts",
            missing,
        )
    if unread:
        return skipped(unread[0])
    return ok(f"the service accounts have what they need: {', '.join(sorted(seen.account_rights))}")


RIGHTS_CHECKS = (own_rights, _driver_rights)
