"""Checks what the API server asks before it stores an object: the webhook and the admission policies."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any

from controller.webhook.certificate import expiries
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Unread, items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
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
_NO_POLICIES = "none of the driver's policies exists"


def _if_configured(look: Callable[[ClusterSeen], Finding]) -> Callable[[ClusterSeen], Finding]:
    """The check; skipped where no webhook is configured."""

    def checked(seen: ClusterSeen) -> Finding:
        return look(seen) if require(seen.webhooks) else skipped(_NONE)

    return checked


def _hooks(seen: ClusterSeen) -> Iterator[tuple[str, Object]]:
    """The hooks of the driver, each with its name."""
    for item in items_of(seen.webhooks):
        for hook in item.get("webhooks") or ():
            yield f"{name_of(item)}/{hook['name']}", hook


@check(
    "webhook-authority",
    "`caBundle`: whether it has a valid certificate",
    "it is missing, no certificate, or all in it have expired; warns 30 days before",
)
@_if_configured
def _authority(seen: ClusterSeen) -> Finding:
    wrong, soon = [], []
    for name, hook in _hooks(seen):
        left_days, why = _bundle(hook, seen.now)
        if why or left_days <= 0:
            wrong.append(f"{name}: {why or 'its caBundle has expired'}")
        elif left_days < 30:
            soon.append(f"{name}: its caBundle expires in {left_days:.0f} days")
    if wrong:
        return fail(
            f"the API server does not trust {counted(len(wrong), 'webhook')}, so it ignores them",
            "set caBundle to the certificate of the authority that signed the webhook's "
            "certificate, or have cert-manager do so",
            wrong,
        )
    if soon:
        return warn(
            f"the caBundle of {counted(len(soon), 'webhook')} expires soon",
            "make a new certificate, and keep both in caBundle during the replacement",
            soon,
        )
    return ok("the certificates in caBundle are valid for more than a month")


def _bundle(hook: Object, now: float) -> tuple[float, str]:
    """How many days the caBundle of a hook is still valid, and what is wrong with it."""
    config: Any = hook.get("clientConfig") or {}
    if not config.get("caBundle"):
        return 0.0, "it has no caBundle"
    try:
        pem = base64.b64decode(config["caBundle"], validate=True).decode("ascii")
        # One authority that is valid is enough: while one replaces another, both are there.
        return (max(expiries(pem)) - now) / _DAY_SECONDS, ""
    except (ValueError, binascii.Error) as error:
        return 0.0, f"its caBundle is not a certificate ({error})"


@check(
    "webhook-endpoints",
    "the webhook's Service and its endpoints",
    "there is no Service, or none of its endpoints is ready",
)
@_if_configured
def _endpoints(seen: ClusterSeen) -> Finding:
    services, endpoint_slices = require(seen.services), require(seen.endpoint_slices)
    wanted = {
        (str(service["namespace"]), str(service["name"]))
        for _, hook in _hooks(seen)
        if (service := (hook.get("clientConfig") or {}).get("service"))
    }
    if not wanted:
        return skipped("the webhook is called by a URL, not by a Service")
    there = {(namespace_of(one), name_of(one)) for one in services}
    lines = [f"{space}/{name}: this Service does not exist" for space, name in sorted(wanted - there)]
    for space, name in sorted(wanted & there):
        if not _ready(endpoint_slices, space, name):
            lines.append(f"{space}/{name}: no endpoint is ready")
    if lines:
        return fail(
            f"{counted(len(lines), 'Service')} of the webhook without a ready endpoint",
            "check that the webhook's Deployment runs, and that the Service selects its pods",
            lines,
        )
    return ok("the webhook's Service has ready endpoints")


def _ready(slices: tuple[Object, ...], namespace: str, service: str) -> int:
    """How many endpoints of the Service are ready."""
    # In discovery.k8s.io/v1 an endpoint without the condition ``ready`` counts as ready.
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for one in slices
        if namespace_of(one) == namespace
        and (one["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == service
        for endpoint in one.get("endpoints") or ()
    )


@check(
    "webhook-answers",
    "whether the webhook denies an invalid claim in a dry run",
    "it does not: the webhook does not answer, or is not trusted",
)
@_if_configured
def _answers(seen: ClusterSeen) -> Finding:
    answer = seen.webhook_answer
    if isinstance(answer, Unread):
        return skipped(answer.why)
    if answer.denied_by_it:
        return ok("in a dry run, the webhook denies a claim that cannot be prepared")
    return fail(
        f"in a dry run, the webhook does not deny a claim that cannot be prepared: {answer.message}",
        "check the logs of its pods, that caBundle fits their certificate, and that the API "
        "server can reach them",
    )


@check(
    "webhook",
    "the configuration of the driver's webhook",
    "never; warns if claims cannot be created without it",
)
@_if_configured
def _configured(seen: ClusterSeen) -> Finding:
    rules = [
        f"{name}: failurePolicy {hook.get('failurePolicy')}"
        for name, hook in _hooks(seen)
        if hook.get("failurePolicy") != "Ignore"
    ]
    if rules:
        return warn(
            "claims with a configuration cannot be created while the webhook is down",
            "set failurePolicy to Ignore: prepare checks everything again",
            rules,
        )
    return ok(f"configured: {', '.join(name for name, _ in _hooks(seen))}")


WEBHOOK_CHECKS = (_configured, _authority, _endpoints, _answers)


@check(
    "policies",
    (
        "the admission policies that limit tokens of a node to that node and claims to their pods, and "
        "their bindings"
    ),
    "one is missing, or is not bound with Deny",
)
def _enforced(seen: ClusterSeen) -> Finding:
    there = {name_of(one) for one in require(seen.policies)}
    # A policy does nothing without a binding, and a binding may only warn or audit.
    bound = {
        str(one["spec"].get("policyName"))
        for one in require(seen.bindings)
        if "Deny" in (one["spec"].get("validationActions") or ())
    }
    has_class = "monitoring" in {name_of(one) for one in items_of(seen.classes)}
    needed = (*POLICIES, MONITORING) if has_class else POLICIES
    lines = [f"{name}: this policy does not exist" for name in needed if name not in there]
    lines += [f"{name}: no binding of it has the action Deny" for name in needed if name in there - bound]
    if lines:
        return fail(
            f"{counted(len(lines), 'admission policy is', 'admission policies are')} not in "
            "force: a driver's token can write for other nodes, or a tenant can delete a claim "
            "of a running pod or take any GPU by the class monitoring",
            _WAY_OUT,
            lines,
        )
    return ok(f"in force: {', '.join(needed)}")


@check(
    "policy-accounts",
    "whether the policies name the service accounts of the driver's pods",
    "a policy does not name one of them",
)
def _accounts(seen: ClusterSeen) -> Finding:
    policies = _own_policies(seen)
    if not policies:
        return skipped(_NO_POLICIES)
    lines = [
        f"{name_of(policy)} does not name {account}"
        for policy in policies
        if name_of(policy) in _NODE_POLICIES
        for account in _writers(seen)
        if account not in _named_accounts(policy)
    ]
    if lines:
        return fail(
            "some policies do not apply to the driver's service accounts",
            "write the names of the service accounts into the policies, or rename the accounts",
            lines,
        )
    return ok(f"they apply to {', '.join(_writers(seen))}")


def _own_policies(seen: ClusterSeen) -> list[Object]:
    """The driver's policies."""
    return [one for one in require(seen.policies) if name_of(one) in (*POLICIES, MONITORING)]


def _writers(seen: ClusterSeen) -> list[str]:
    """The driver's accounts without that of the page, which writes nothing that a policy could restrict."""
    return sorted(account for account in seen.account_rights if not account.endswith("/gpu-dra-page"))


def _named_accounts(policy: Object) -> set[str]:
    """The service accounts that a policy applies to, as ``namespace/name``."""
    conditions = policy["spec"].get("matchConditions") or ()
    text = " ".join(str(one.get("expression", "")) for one in conditions)
    return {f"{namespace}/{name}" for namespace, name in _ACCOUNT.findall(text)}


@check(
    "policy-expressions",
    "type warnings of the API server about the policies",
    "never; repeats them as warnings",
)
def _types(seen: ClusterSeen) -> Finding:
    policies = _own_policies(seen)
    if not policies:
        return skipped(_NO_POLICIES)
    # The API server compiles the expressions against the types of the kinds that the policy matches.
    lines = [
        f"{name_of(policy)}: {one.get('fieldRef', '')}: {one.get('warning', '')}"
        for policy in policies
        for one in ((policy.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings") or ()
    ]
    if lines:
        return warn(
            f"the API server warns of {counted(len(lines), 'expression')} of the policies", _WAY_OUT, lines
        )
    return ok("the API server has no warnings about their expressions")


POLICY_CHECKS = (_enforced, _accounts, _types)
