"""The rules in CEL of CustomResourceDefinitions, ``x-kubernetes-validations``."""

from __future__ import annotations

from kubernetes_rules.custom_resources.rules.definitions import definition_rule_errors
from kubernetes_rules.custom_resources.rules.evaluation import rule_errors

__all__ = ["definition_rule_errors", "rule_errors"]
