"""Checks of rights: what this user may look at, and what the driver's service accounts may do."""

from __future__ import annotations

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, skipped, warn
from gpuctl.doctor.outside.seen import ClusterSeen, Unread


def _own_rights(seen: ClusterSeen) -> Finding:
    if isinstance(seen.own_rights, Unread):
        return skipped(seen.own_rights.why)
    missing = [str(right) for right, is_granted in seen.own_rights.items() if not is_granted]
    if missing:
        return warn(
            f"this user lacks {counted(len(missing), 'right')}, so that not everything is looked at",
            "ask as an administrator, or have these rights granted",
            missing,
        )
    return ok("this user may look at everything")


def _driver_rights(seen: ClusterSeen) -> Finding:
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


RIGHTS_CHECKS: tuple[Check[ClusterSeen], ...] = (
    Check(
        "own-rights",
        "this user's rights, by SelfSubjectAccessReview",
        "never; warns of rights that lack for looking",
        _own_rights,
    ),
    Check(
        "driver-rights",
        "the rights of the driver's service accounts, by SubjectAccessReview",
        "one lacks a right that its process needs",
        _driver_rights,
    ),
)
