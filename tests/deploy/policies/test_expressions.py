"""The expressions of deploy/admission-policy.yaml say of each write what the table says, read by our CEL.

``tests/api`` has Kubernetes say the same. Here only expressions are tried: ``concerns`` plays the rules about
the resources of a policy, and a variable says who may bind claims, in the place of ``authorizer``.
"""

from functools import cache
from typing import Any

import pytest

from kubernetes_rules.cel.program import Program, compile_program
from kubernetes_rules.cel.types import DYN
from tests.api.policy_rows import ADMIN, NODELESS, OWN, ROWS, TENANT, Row
from tests.clusters import PACKAGE_ROOT, Object, objects_in

RIGHTS = [*objects_in(PACKAGE_ROOT / "deploy" / "rbac.yaml")]
_OBJECTS = [*objects_in(PACKAGE_ROOT / "deploy" / "admission-policy.yaml")]
POLICIES = [one for one in _OBJECTS if one["kind"] == "ValidatingAdmissionPolicy"]
BINDINGS = [one for one in _OBJECTS if one["kind"] == "ValidatingAdmissionPolicyBinding"]
OF_A_NODE = ("gpu-dra-controller", "gpu-dra-kubeletplugin")
PLURALS = {"ResourceSlice": "resourceslices", "ResourceClaim": "resourceclaims", "Event": "events"}
NAMES = ("object", "oldObject", "request", "variables", "mayBind")
MAY_BIND = 'authorizer.group("resource.k8s.io").resource("resourceclaims").subresource("binding")'


def user(who: str) -> Object:
    """The user as the API server knows it."""
    account = who.removesuffix(NODELESS)
    if who in (TENANT, ADMIN):
        return {"username": who, "extra": {}}
    extra = {"authentication.kubernetes.io/node-name": (OWN,)} if account == who else {}
    return {"username": f"system:serviceaccount:gpu-dra:{account}", "extra": extra}


def plain(raw: Any) -> Any:
    """A value of JSON as a value of CEL."""
    if isinstance(raw, dict):
        return {key: plain(value) for key, value in raw.items()}
    return tuple(map(plain, raw)) if isinstance(raw, list) else raw


def concerns(policy: Object, row: Row) -> bool:
    """Whether the policy is about writes like this."""
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    operation = "CREATE" if row.old is None else "DELETE" if row.new is None else "UPDATE"
    item = row.new or row.old
    assert item is not None
    resource = "/".join(filter(None, (PLURALS[item["kind"]], row.subresource)))
    return resource in rule["resources"] and operation in rule["operations"]


@cache
def compiled(expression: str) -> Program:
    """The program of an expression, in which ``authorizer`` is replaced."""
    if expression.startswith(MAY_BIND):
        assert expression.endswith('.check("update").allowed()')
        expression = "mayBind"
    expression = f"dyn({expression})"
    for name in NAMES:
        expression = f"cel.bind({name}, given.{name}, {expression})"
    return compile_program(expression, "given", DYN)


def refusals(policy: Object, row: Row) -> dict[int, str]:
    """What the expressions of a policy say against a write, by their places."""
    spec, variables = policy["spec"], Object()
    values = (plain(row.new), plain(row.old), {"userInfo": user(row.who)}, variables, row.who == ADMIN)
    given = dict(zip(NAMES, values, strict=True))

    def value(expression: str) -> Any:
        return compiled(expression).run(given).value

    if not concerns(policy, row) or not all(
        value(one["expression"]) for one in spec.get("matchConditions", ())
    ):
        return {}
    for one in spec.get("variables", ()):
        variables[one["name"]] = value(one["expression"])
    return {
        place: one["message"] if "message" in one else value(one["messageExpression"])
        for place, one in enumerate(spec["validations"])
        if value(one["expression"]) is not True
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_write_is_refused_as_the_table_says(row: Row) -> None:
    said = [text for policy in POLICIES for text in refusals(policy, row).values()]

    # Kubernetes says the first one.
    assert row.said in said[0] if row.said else said == []


def test_every_expression_refuses_something() -> None:
    refusing = {
        (name_of(policy), place) for row in ROWS for policy in POLICIES for place in refusals(policy, row)
    }

    every = {(name_of(one), place) for one in POLICIES for place in range(len(one["spec"]["validations"]))}
    assert every - refusing == set()


def name_of(policy: Object) -> str:
    return str(policy["metadata"]["name"])


@pytest.mark.parametrize("name", ["gpu-dra-own-slices", "gpu-dra-own-claim-status", "gpu-dra-own-events"])
def test_each_policy_binds_exactly_the_service_accounts_that_have_rights(name: str) -> None:
    """A service account with a right to write that a policy forgets could write for every node."""
    accounts = {
        f'"system:serviceaccount:{subject["namespace"]}:{subject["name"]}"'
        for one in RIGHTS
        if one["kind"] == "ClusterRoleBinding" and one["roleRef"]["name"] in OF_A_NODE
        for subject in one["subjects"]
    }
    (spec,) = (one["spec"] for one in POLICIES if name_of(one) == name)

    condition = spec["matchConditions"][0]["expression"]
    assert all(account in condition for account in accounts)
    assert condition.count("system:serviceaccount:") == len(accounts) == 2
    assert spec["failurePolicy"] == "Fail"
    (binding,) = (one["spec"] for one in BINDINGS if name_of(one) == name)
    assert binding == {"policyName": name, "validationActions": ["Deny"]}


def test_rights_hold_no_wildcards_and_no_secrets() -> None:
    rules = [str(one["rules"]) for one in RIGHTS if "rules" in one]
    assert len(rules) == 10
    assert [rule for rule in rules if "*" in rule or "secrets" in rule] == []
