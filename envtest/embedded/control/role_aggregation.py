"""Fills in ClusterRoles with an aggregation rule, as the controller in kube-controller-manager does.

Go: kubernetes/pkg/controller/clusterroleaggregation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import Controller, ObjectBackOff
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules.rbac import aggregated
from kubernetes_rules.selectors import label_selector_matches

Object = dict[str, Any]

NAME = "clusterrole aggregation controller"


class EmbeddedRoleAggregation(Controller):
    """Reconciles all ClusterRoles after every change of one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.CLUSTER_ROLES,))
        self._back_off = ObjectBackOff(NAME)

    def sync(self) -> float | None:
        """Write the rules of all aggregated roles; returns in how many seconds one is due again."""
        roles = self._objects.list(kinds.CLUSTER_ROLES)
        with_rule = [one for one in roles if one.get("aggregationRule")]
        return self._back_off.for_each(with_rule, lambda role: self._aggregate(role, roles))

    def _aggregate(self, role: Object, roles: list[Object]) -> None:
        rules = aggregated(role, roles, _selects)
        if rules != (role.get("rules") or []):
            self._objects.replace(kinds.CLUSTER_ROLES, {**role, "rules": rules})


def _selects(selector: Mapping[str, Any], role: Mapping[str, Any]) -> bool:
    return label_selector_matches(selector, role["metadata"].get("labels") or {})
