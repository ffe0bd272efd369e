"""Enforces the ValidatingAdmissionPolicies in the store, with their bindings and parameters.

Other than in Kubernetes a policy counts from the next write on, since nothing watches it from afar. Policies
are not called when a client enters a container (CONNECT).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.admission.writes import may, write_of
from envtest.embedded.api.admission import NAMESPACES, Attributes
from envtest.embedded.api.resources import Catalogue
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.api.store import Store

if TYPE_CHECKING:
    from kubernetes_rules.admission.policies import CompiledPolicy, Surroundings

Object = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_POLICIES, _BINDINGS = (_GROUP, "validatingadmissionpolicies"), (_GROUP, "validatingadmissionpolicybindings")


@dataclass(frozen=True, slots=True)
class _Known:
    """The policies that have bindings, as they were after the changes ``versions``."""

    versions: tuple[int, int] = (-1, -1)
    policies: tuple[tuple[Object, CompiledPolicy, tuple[Object, ...]], ...] = ()


class Policies:
    """A validator (see api.admission) that asks the policies. Thread-safe."""

    def __init__(self, store: Store, catalogue: Catalogue, gate: Gate) -> None:
        self._store = store
        self._catalogue = catalogue
        self._gate = gate
        self._known = _Known()

    def __call__(self, attributes: Attributes) -> None:
        """Add warnings; raises Refused (401, 403, 413, 422) where a policy denies the write."""
        policies = self._current()
        if not policies:
            return
        write = write_of(attributes, self._catalogue)
        if write.is_exempt:
            return
        # The whole of CEL, which a cluster without policies does not load.
        from kubernetes_rules.admission.policies import judge

        verdict = judge(
            write, [(compiled, bindings) for _, compiled, bindings in policies], self._surroundings()
        )
        attributes.warnings.extend(verdict.warnings)
        denial = verdict.denial
        if denial is not None:
            resource, name = attributes.resource, write.shown_name
            text = f'{resource.qualified_name} "{name}" is forbidden: {denial.message}'
            causes = [{"message": denial.message}]
            details = {**details_of(resource.group, resource.plural, name), "causes": causes}
            raise Refused(denial.code, text, denial.reason, details)

    def _current(self) -> Sequence[tuple[Object, CompiledPolicy, tuple[Object, ...]]]:
        """The policies with bindings, compiled again only after a change of a policy or a binding."""
        known = self._known
        versions = (self._store.last_change(_POLICIES), self._store.last_change(_BINDINGS))
        if known.versions == versions:
            return known.policies
        bindings: dict[str, list[Object]] = {}
        for _, binding in self._store.items(_BINDINGS):
            bindings.setdefault(binding["spec"]["policyName"], []).append(binding)
        before = {item["metadata"]["name"]: (item, compiled) for item, compiled, _ in known.policies}
        policies = tuple(
            (policy, _compiled(policy, before.get(name)), tuple(bindings[name]))
            for (_, name), policy in self._store.items(_POLICIES)
            if name in bindings
        )
        self._known = _Known(versions, policies)
        return policies

    def _surroundings(self) -> Surroundings:
        from kubernetes_rules.admission.policies import Surroundings

        return Surroundings(self._namespace_of, self._params_of, may(self._gate))

    def _namespace_of(self, name: str) -> Object | None:
        return self._store.get(NAMESPACES, ("", name))

    def _params_of(self, api_version: str, kind: str) -> tuple[bool, Sequence[Object]] | None:
        resource = self._catalogue.of_kind(api_version, kind)
        if resource is None:
            return None
        items = self._store.items(resource.collection)
        return resource.namespaced, [item for _, item in items]


def _compiled(policy: Object, before: tuple[Object, CompiledPolicy] | None) -> CompiledPolicy:
    from kubernetes_rules.admission.policies import compile_policy

    return before[1] if before is not None and before[0] is policy else compile_policy(policy)
