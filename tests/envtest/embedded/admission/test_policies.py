"""Policies are enforced as by kube-apiserver: once bound, they deny, warn and read parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envtest.embedded.api.requests import User, parse_request
from envtest.embedded.api.statuses import Refused
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
TOO_MANY = (
    "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'few' with binding 'few' denied request: "
    "failed expression: object.data.size() < 2"
)


@pytest.fixture
def server() -> EmbeddedApiServer:
    return EmbeddedApiServer()


def policy(*expressions: str, **more: Any) -> Object:
    """A policy for ConfigMaps."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    validations = [{"expression": one} for one in expressions or ("object.data.size() < 2",)]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations, **more}
    return {"metadata": {"name": "few"}, "spec": spec}


def binding(*actions: str, **more: Any) -> Object:
    spec = {"policyName": "few", "validationActions": list(actions or ("Deny",)), **more}
    return {"metadata": {"name": "few"}, "spec": spec}


def enforce(server: EmbeddedApiServer, held: Object, bound: Object) -> None:
    server.create(POLICIES, held)
    server.create(BINDINGS, bound)


def written(server: EmbeddedApiServer, *data: str, user: str = "me") -> tuple[Object, list[str]]:
    """The refusal of a ConfigMap with these keys, or nothing, and the warnings; the map is not kept."""
    item = {"metadata": {"name": "c"}, "data": dict.fromkeys(data, "x")}
    warnings: list[str] = []
    request = parse_request("POST", MAPS)
    assert request is not None
    try:
        server.verbs.create(replace(request, user=User(user)), item, warnings)
    except Refused as refused:
        return refused.body, warnings
    server.delete(f"{MAPS}/c")
    return {}, warnings


def test_a_policy_denies_from_its_binding_to_its_deletion(server: EmbeddedApiServer) -> None:
    server.create(POLICIES, policy())
    unbound, _ = written(server, "a", "b")
    server.create(BINDINGS, binding())
    bound, _ = written(server, "a", "b")
    few, _ = written(server, "a")
    server.delete(f"{POLICIES}/few")
    deleted, _ = written(server, "a", "b")

    assert (unbound, few, deleted) == ({}, {}, {})
    assert (bound["code"], bound["reason"], bound["message"]) == (422, "Invalid", TOO_MANY)
    assert bound["details"]["name"] == "c"


def test_a_changed_policy_counts_from_the_next_write_on(server: EmbeddedApiServer) -> None:
    enforce(server, policy(), binding())
    refused, _ = written(server, "a", "b")
    held = server.objects("validatingadmissionpolicies", "admissionregistration.k8s.io")[0]
    server.replace(f"{POLICIES}/few", {**held, "spec": policy("true")["spec"]})
    allowed, _ = written(server, "a", "b")

    assert (refused["code"], allowed) == (422, {})


def test_a_binding_that_warns_lets_the_write_through(server: EmbeddedApiServer) -> None:
    enforce(server, policy(), binding("Warn"))

    refusal, warnings = written(server, "a", "b")

    assert refusal == {}
    failed = "failed expression: object.data.size() < 2"
    assert warnings == [f"Validation failed for ValidatingAdmissionPolicy 'few' with binding 'few': {failed}"]


def test_conditions_variables_and_messages_know_who_asks(server: EmbeddedApiServer) -> None:
    held = policy(
        matchConditions=[{"name": "others", "expression": "request.userInfo.username != 'root'"}],
        variables=[{"name": "count", "expression": "object.data.size()"}],
        validations=[
            {
                "expression": "variables.count < 2",
                "messageExpression": "request.userInfo.username + ' has ' + string(variables.count)",
                "reason": "Forbidden",
            }
        ],
    )
    enforce(server, held, binding())

    refusal, _ = written(server, "a", "b")
    other, _ = written(server, "a", "b", user="root")

    assert (refusal["code"], refusal["message"].partition("denied request: ")[2]) == (403, "me has 2")
    assert other == {}


def test_a_binding_gives_its_policy_an_object_as_parameters(server: EmbeddedApiServer) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    held = policy("object.data.size() < int(params.data.most)", paramKind=kind)
    reference = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
    server.create(MAPS, {"metadata": {"name": "limits"}, "data": {"most": "3"}})
    enforce(server, held, binding(paramRef=reference))

    allowed, _ = written(server, "a", "b")
    refused, _ = written(server, "a", "b", "c")
    server.delete(f"{POLICIES}/few")
    server.delete(f"{MAPS}/limits")
    server.create(POLICIES, held)
    missing, _ = written(server, "a")

    assert allowed == {}
    assert "failed expression: object.data.size() < int(params.data.most)" in refused["message"]
    assert "no params found for policy binding with `Deny` parameterNotFoundAction" in missing["message"]


@pytest.mark.parametrize(("policy_of_failures", "is_refused"), [("Fail", True), ("Ignore", False)])
def test_an_expression_that_fails_denies_unless_failures_are_ignored(
    server: EmbeddedApiServer, policy_of_failures: str, is_refused: bool
) -> None:
    enforce(server, policy("object.data.nothing == 'x'", failurePolicy=policy_of_failures), binding())

    refusal, _ = written(server, "a")

    assert bool(refusal) == is_refused


def test_a_policy_with_a_broken_expression_is_refused(server: EmbeddedApiServer) -> None:
    with pytest.raises(Refused) as refused:
        server.create(POLICIES, policy("objet.data.size() < 2"))

    assert refused.value.code == 422
    assert "spec.validations[0].expression: Invalid value" in refused.value.body["message"]
    assert "undeclared reference to 'objet'" in refused.value.body["message"]


def test_policies_are_not_asked_about_policies(server: EmbeddedApiServer) -> None:
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    enforce(server, policy("false", matchConstraints={"resourceRules": [every]}), binding())

    server.delete(f"{POLICIES}/few")

    assert written(server, "a") == ({}, [])
