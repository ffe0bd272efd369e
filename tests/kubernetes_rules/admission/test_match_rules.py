"""Rules of webhooks and policies match by operation, group, version, resource, subresource and scope."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubernetes_rules.admission.match_rules import Target, is_exempt, rule_matches

POD = Target("CREATE", "", "v1", "pods", namespace="default")
STATUS = replace(POD, operation="UPDATE", subresource="status")
NODE = Target("CREATE", "", "v1", "nodes")
NAMESPACE = Target("UPDATE", "", "v1", "namespaces", namespace="default")


def rule(*resources: str, **fields: Any) -> dict[str, Any]:
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"]}
    return {**everything, "resources": list(resources), **fields}


@pytest.mark.parametrize(
    ("one", "matching"),
    [
        (rule("pods"), [POD]),
        (rule("pods/status"), [STATUS]),
        (rule("pods/*"), [POD, STATUS]),
        (rule("*/status"), [STATUS]),
        (rule("*"), [POD, NODE, NAMESPACE]),
        (rule("*/*"), [POD, STATUS, NODE, NAMESPACE]),
        (rule("*", operations=["UPDATE", "DELETE"]), [NAMESPACE]),
        (rule("*", apiGroups=["apps"]), []),
        (rule("*", apiVersions=["v1beta1"]), []),
        (rule("*", scope="Namespaced"), [POD]),
        # A Namespace is an object of the whole cluster, though it counts as its own namespace.
        (rule("*", scope="Cluster"), [NODE, NAMESPACE]),
    ],
)
def test_a_rule_matches(one: dict[str, Any], matching: list[Target]) -> None:
    assert [target for target in (POD, STATUS, NODE, NAMESPACE) if rule_matches(one, target)] == matching


def test_what_configures_admission_is_exempt() -> None:
    assert is_exempt("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")
    assert not is_exempt("example.com", "ValidatingAdmissionPolicyBinding")
