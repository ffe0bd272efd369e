"""Webhook configurations have the defaults and the errors of kube-apiserver 1.37.1."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.admission.webhook_configurations import webhook_errors
from kubernetes_rules.kind_defaults import fill_in_defaults

Object = dict[str, Any]
RULE: Object = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def hook(name: str = "a.example.com", **fields: Any) -> Object:
    return {
        "name": name,
        "clientConfig": {"url": "https://127.0.0.1/x"},
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def configuration(*hooks: Object, kind: str = "ValidatingWebhookConfiguration") -> Object:
    return {"kind": kind, "metadata": {"name": "a"}, "webhooks": list(hooks)}


def texts(*hooks: Object, old: Object | None = None) -> list[str]:
    return [str(error) for error in webhook_errors(configuration(*hooks), old)]


def test_a_complete_webhook_has_no_errors() -> None:
    assert texts(hook()) == []


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        (
            {"name": "a.b", "clientConfig": {}},
            [
                'name: Invalid value: "a.b": should be a domain with at least three segments',
                "clientConfig: Required value: exactly one of url or service is required",
            ],
        ),
        (
            {"failurePolicy": "Foo", "matchPolicy": "Bar", "sideEffects": "Some", "timeoutSeconds": 31},
            [
                'failurePolicy: Unsupported value: "Foo": supported values: "Fail", "Ignore"',
                'matchPolicy: Unsupported value: "Bar": supported values: "Equivalent", "Exact"',
                'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
                "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ],
        ),
        ({"sideEffects": None}, ["sideEffects: Required value: must specify one of None, NoneOnDryRun"]),
        (
            {"admissionReviewVersions": ["v2", "v2"]},
            [
                'admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
                'admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1',
            ],
        ),
        (
            {"admissionReviewVersions": []},
            ["admissionReviewVersions: Required value: must specify one of"],
        ),
        (
            {"rules": [{**RULE, "operations": ["*", "FOO"], "scope": "X", "apiVersions": ["*", ""]}]},
            [
                'rules[0].operations: Invalid value: ["*","FOO"]: if \'*\' is present, must not specify',
                'rules[0].operations[1]: Unsupported value: "FOO": supported values: "*", "CONNECT"',
                'rules[0].apiVersions: Invalid value: ["*",""]: if \'*\' is present, must not specify',
                "rules[0].apiVersions[1]: Required value",
                'rules[0].scope: Unsupported value: "X": supported values: "*", "Cluster", "Namespaced"',
            ],
        ),
        (
            {"rules": [{**RULE, "resources": ["*", "a/*", "a/b", "pods"]}]},
            [
                "rules[0].resources[2]: Invalid value: \"a/b\": if 'a/*' is present, must not specify a/b",
                'rules[0].resources: Invalid value: ["*","a/*","a/b","pods"]: if \'*\' is present, must not',
            ],
        ),
        (
            {"clientConfig": {"url": "http://u:p@h/x?q=1#f"}},
            [
                "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired",
                'clientConfig.url: Invalid value: "u:p": user information is not permitted in the URL',
                'clientConfig.url: Invalid value: "f": fragments are not permitted in the URL',
                'clientConfig.url: Invalid value: "q=1": query parameters are not permitted in the URL',
            ],
        ),
        (
            # Kubernetes takes name and namespace for each other here.
            {"clientConfig": {"service": {"name": "n", "namespace": "", "path": "//", "port": 70000}}},
            [
                "clientConfig.service.name: Required value",
                "clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and",
                'clientConfig.service.path: Invalid value: "//": segment[0] may not be empty',
            ],
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            ["objectSelector.matchExpressions[0].values: Required value: must be specified when"],
        ),
        (
            {"matchConditions": [{"name": "c", "expression": " "}, {"name": "c", "expression": "true"}]},
            [
                "matchConditions[0].expression: Required value",
                'matchConditions[1].name: Duplicate value: "c"',
            ],
        ),
        (
            {"matchConditions": [{"name": "c", "expression": "params == 1"}]},
            ['matchConditions[0].expression: Invalid value: "params == 1": compilation failed: ERROR'],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_field(fields: Object, errors: list[str]) -> None:
    found = texts(hook(**fields))

    assert len(found) == len(errors)
    for text, beginning in zip(found, errors, strict=True):
        assert text.startswith(f"webhooks[0].{beginning}")


def test_two_webhooks_have_two_names() -> None:
    assert texts(hook(), hook()) == ['webhooks[1].name: Duplicate value: "a.example.com"']


def test_an_update_may_keep_what_a_new_configuration_may_not_have() -> None:
    effects = hook(sideEffects="Unknown")
    old = configuration(effects, effects)

    assert texts(effects, effects, old=old) == []
    assert texts(effects, effects, old=configuration(hook())) != []


def test_the_defaults_are_filled_in() -> None:
    service = {"name": "n", "namespace": "m"}
    item = configuration(hook(clientConfig={"service": service}), kind="MutatingWebhookConfiguration")
    item["webhooks"][0]["rules"] = [dict(RULE)]

    fill_in_defaults(item, None)

    [found] = item["webhooks"]
    policies = [found[name] for name in ("failurePolicy", "matchPolicy", "reinvocationPolicy")]
    assert policies == ["Fail", "Equivalent", "Never"]
    assert (found["timeoutSeconds"], found["namespaceSelector"], found["objectSelector"]) == (10, {}, {})
    assert (found["rules"][0]["scope"], found["clientConfig"]["service"]["port"]) == ("*", 443)
