"""Checks of the admission policies that keep a node's driver to its own node, and tenants to their quotas."""

from __future__ import annotations

import re

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, skipped, warn
from gpuctl.doctor.outside.seen import ClusterSeen, Object, Unread, name_of

OF_NODES = ("gpu-dra-own-slices", "gpu-dra-own-claim-status", "gpu-dra-own-events")
"""Those that name the driver's service accounts."""

POLICIES = (*OF_NODES, "gpu-dra-claims-in-use")
PAGE_ACCOUNT = "gpu-dra-page"

_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9-]+):([a-z0-9.-]+)")
_WAY_OUT = "apply the admission policies that come with the driver"


def _enforced(seen: ClusterSeen) -> Finding:
    if isinstance(seen.policies, Unread):
        return skipped(seen.policies.why)
    if isinstance(seen.bindings, Unread):
        return skipped(seen.bindings.why)
    there = {name_of(one) for one in seen.policies}
    bound = {
        str(one["spec"].get("policyName"))
        for one in seen.bindings
        if "Deny" in (one["spec"].get("validationActions") or ())
    }
    lines = [f"{name}: there is no such policy" for name in POLICIES if name not in there]
    lines += [f"{name}: nothing binds it with Deny" for name in POLICIES if name in there - bound]
    if lines:
        return fail(
            "a driver's token can write for other nodes, or a tenant delete a claim under its running pod: "
            f"{counted(len(lines), 'admission policy is', 'admission policies are')} not in force",
            _WAY_OUT,
            lines,
        )
    return ok(f"in force: {', '.join(POLICIES)}")


def _accounts(seen: ClusterSeen) -> Finding:
    policies = _of_the_driver(seen)
    if isinstance(policies, Finding):
        return policies
    lines = [
        f"{name_of(policy)} does not name {account}"
        for policy in policies
        if name_of(policy) in OF_NODES
        for account in _writers(seen)
        if account not in named_accounts(policy)
    ]
    if lines:
        return fail(
            "policies do not hold for the service accounts that the driver has",
            "give the policies the names of the service accounts, or the other way round",
            lines,
        )
    return ok(f"they hold for {', '.join(_writers(seen))}")


def _of_the_driver(seen: ClusterSeen) -> list[Object] | Finding:
    """The driver's policies, or why there are none to look at."""
    if isinstance(seen.policies, Unread):
        return skipped(seen.policies.why)
    found = [one for one in seen.policies if name_of(one) in POLICIES]
    return found or skipped("there are no policies of the driver")


def _writers(seen: ClusterSeen) -> list[str]:
    """The accounts of the driver, but for the page's, which writes nothing that a policy could narrow."""
    return sorted(account for account in seen.account_rights if not account.endswith(f"/{PAGE_ACCOUNT}"))


def named_accounts(policy: Object) -> set[str]:
    """The service accounts for which a policy holds, as ``namespace/name``."""
    conditions = policy["spec"].get("matchConditions") or ()
    text = " ".join(str(one.get("expression", "")) for one in conditions)
    return {f"{namespace}/{name}" for namespace, name in _ACCOUNT.findall(text)}


def _types(seen: ClusterSeen) -> Finding:
    policies = _of_the_driver(seen)
    if isinstance(policies, Finding):
        return policies
    lines = [
        f"{name_of(policy)}: {told.get('fieldRef', '')}: {told.get('warning', '')}"
        for policy in policies
        for told in ((policy.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings") or ()
    ]
    if lines:
        return warn(
            f"the API server warns of {counted(len(lines), 'expression')} of the policies", _WAY_OUT, lines
        )
    return ok("the API server has nothing against their expressions")


POLICY_CHECKS: tuple[Check[ClusterSeen], ...] = (
    Check(
        "policies",
        "the admission policies that keep a node's token to its own node and a claim to its pods, bound",
        "one is missing, or not bound with Deny",
        _enforced,
    ),
    Check(
        "policy-accounts",
        "the service accounts that the policies name, against those of the driver's pods",
        "a policy does not name an account that the driver has",
        _accounts,
    ),
    Check(
        "policy-expressions",
        "what the API server says about the types in their expressions",
        "never; warns of what it says",
        _types,
    ),
)
