"""Checks what the API server asks before it stores an object: the webhook and the admission policies."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from controller.webhook.certificate import expiries
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, warn
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of

_DAY_SECONDS = 86400.0
_NONE = (
    "no webhook is configured: mistakes in claims are reported when the claims are prepared, not "
    "when they are created"
)

_NODE_POLICIES = ("gpu-dra-own-slices", "gpu-dra-own-claim-status", "gpu-dra-own-events")
"""The policies that name the driver's service accounts."""

POLICIES = (*_NODE_POLICIES, "gpu-dra-claims-in-use", "gpu-dra-claim-amounts")

MONITORING = "gpu-dra-monitoring-looks"
"""The policy that comes with the DeviceClass ``monitoring``, and is needed if that exists."""

_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9-]+):([a-z0-9.-]+)")
_WAY_OUT = "apply the admission policies that come with the driver"


@check
def _webhook(seen: ClusterSeen) -> Finding:
    """The driver's webhook: its `caBundle`, its Service, and whether it denies an invalid claim in a dry run.

    Fails if the API server does not trust it, or it does not answer; warns 30 days before `caBundle` expires,
    and if claims cannot be created without the webhook.
    """
    require(seen.webhooks, _NONE)
    hooks = dict(_hooks(seen))
    left = {name: _bundle(hook, seen.now) for name, hook in hooks.items()}
    wrong = [f"{name}: {why or 'its caBundle has expired'}" for name, (days, why) in left.items() if not days]
    if wrong:
        return fail(
            f"the API server does not trust {counted(len(wrong), 'webhook')}, so it ignores them",
            "set caBundle to the authority of the webhook's certificate, or have cert-manager do so",
            wrong,
        )
    unready = list(_unready(seen, hooks))
    if unready:
        return fail(
            f"{counted(len(unready), 'Service')} of the webhook without a ready endpoint",
            "check that the webhook's Deployment runs, and that the Service selects its pods",
            unready,
        )
    if answer := require(seen.webhook_answer):
        return fail(
            f"in a dry run, the webhook does not deny a claim that cannot be prepared: {answer}",
            "check its logs, that caBundle fits its certificate, and that the API server can reach it",
        )
    soon = [
        f"{name}: its caBundle expires in {days:.0f} days" for name, (days, _) in left.items() if days < 30
    ]
    if soon:
        return warn(
            f"the caBundle of {counted(len(soon), 'webhook')} expires soon",
            "make a new certificate, and keep both in caBundle during the replacement",
            soon,
        )
    policies = {name: hook.get("failurePolicy") for name, hook in hooks.items()}
    strict = [f"{name}: failurePolicy {policy}" for name, policy in policies.items() if policy != "Ignore"]
    if strict:
        return warn(
            "claims with a configuration cannot be created while the webhook is down",
            "set failurePolicy to Ignore: prepare checks everything again",
            strict,
        )
    return ok(f"{', '.join(hooks)}: in a dry run, it denies a claim that cannot be prepared")


def _hooks(seen: ClusterSeen) -> Iterator[tuple[str, Object]]:
    """The hooks of the driver, each with its name."""
    for item in items_of(seen.webhooks):
        for hook in item.get("webhooks") or ():
            yield f"{name_of(item)}/{hook['name']}", hook


def _bundle(hook: Object, now: float) -> tuple[float, str]:
    """How many days the caBundle of a hook is still valid, 0 if it is not, and what is wrong with it."""
    config: Any = hook.get("clientConfig") or {}
    if not config.get("caBundle"):
        return 0.0, "it has no caBundle"
    try:
        pem = base64.b64decode(config["caBundle"], validate=True).decode("ascii")
        # One authority that is valid is enough: while one replaces another, both are there.
        return max(0.0, max(expiries(pem)) - now) / _DAY_SECONDS, ""
    except (ValueError, binascii.Error) as error:
        return 0.0, f"its caBundle is not a certificate ({error})"


def _unready(seen: ClusterSeen, hooks: dict[str, Object]) -> Iterator[str]:
    """The Services of hooks that do not exist or have no ready endpoint, as far as they could be read."""
    services = [(hook.get("clientConfig") or {}).get("service") for hook in hooks.values()]
    there = {(namespace_of(one), name_of(one)) for one in items_of(seen.services)}
    # In discovery.k8s.io/v1 an endpoint without the condition ``ready`` counts as ready.
    ready = {
        (namespace_of(one), (one["metadata"].get("labels") or {}).get("kubernetes.io/service-name"))
        for one in items_of(seen.endpoint_slices)
        if any(
            (endpoint.get("conditions") or {}).get("ready") is not False
            for endpoint in one.get("endpoints") or ()
        )
    }
    for space, name in sorted({(str(one["namespace"]), str(one["name"])) for one in services if one}):
        if isinstance(seen.services, tuple) and (space, name) not in there:
            yield f"{space}/{name}: this Service does not exist"
        elif isinstance(seen.endpoint_slices, tuple) and (space, name) not in ready:
            yield f"{space}/{name}: no endpoint is ready"


@check
def _policies(seen: ClusterSeen) -> Finding:
    """The admission policies that limit tokens of a node to that node and claims to their pods; their
    bindings.

    Fails if one is missing, is not bound with Deny, or does not name a service account of the driver's pods;
    repeats type warnings of the API server about them.
    """
    policies = {name_of(one): one for one in require(seen.policies)}
    # A policy does nothing without a binding, and a binding may only warn or audit.
    bound = {
        str(one["spec"].get("policyName"))
        for one in require(seen.bindings)
        if "Deny" in (one["spec"].get("validationActions") or ())
    }
    has_class = "monitoring" in {name_of(one) for one in items_of(seen.classes)}
    needed = (*POLICIES, MONITORING) if has_class else POLICIES
    lines = [f"{name}: this policy does not exist" for name in needed if name not in policies]
    lines += [
        f"{name}: no binding of it has the action Deny" for name in needed if name in policies.keys() - bound
    ]
    if lines:
        return fail(
            f"{counted(len(lines), 'admission policy is', 'admission policies are')} not in "
            "force: a driver's token can write for other nodes, or a tenant can delete a claim "
            "of a running pod or take any GPU by the class monitoring",
            _WAY_OUT,
            lines,
        )
    # The page writes nothing that a policy could restrict.
    accounts = sorted(one for one in seen.account_rights if not one.endswith("/gpu-dra-page"))
    unnamed = [
        f"{name} does not name {account}"
        for name in _NODE_POLICIES
        for account in accounts
        if account not in _named_accounts(policies[name])
    ]
    if unnamed:
        return fail(
            "some policies do not apply to the driver's service accounts",
            "write the names of the service accounts into the policies, or rename the accounts",
            unnamed,
        )
    warnings = list(_type_warnings(policies[name] for name in needed))
    if warnings:
        words = counted(len(warnings), "expression")
        return warn(f"the API server warns of {words} of the policies", _WAY_OUT, warnings)
    return ok(f"in force for {', '.join(accounts)}: {', '.join(needed)}")


def _named_accounts(policy: Object) -> set[str]:
    """The service accounts that a policy applies to, as ``namespace/name``."""
    conditions = policy["spec"].get("matchConditions") or ()
    text = " ".join(str(one.get("expression", "")) for one in conditions)
    return {f"{namespace}/{name}" for namespace, name in _ACCOUNT.findall(text)}


def _type_warnings(policies: Iterator[Object]) -> Iterator[str]:
    # The API server compiles the expressions against the types of the kinds that the policy matches.
    for policy in policies:
        checked = (policy.get("status") or {}).get("typeChecking") or {}
        for one in checked.get("expressionWarnings") or ():
            yield f"{name_of(policy)}: {one.get('fieldRef', '')}: {one.get('warning', '')}"


ADMISSION_CHECKS = (_policies, _webhook)
