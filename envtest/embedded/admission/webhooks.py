"""Asks the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations about writes.

Go: k8s.io/apiserver, pkg/admission/plugin/webhook: generic/webhook.go, and dispatcher.go of mutating/ and
validating/.
"""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.admission.calls import CallFailed, ResolveService, WebhookCalls
from envtest.embedded.admission.reviews import (
    REVIEW_VERSIONS,
    Misunderstood,
    Verdict,
    refused_by,
    review_of,
    verdict_of,
)
from envtest.embedded.admission.writes import form_of, kind_of, may, write_of
from envtest.embedded.api import subresources
from envtest.embedded.api.admission import NAMESPACES, Attributes
from envtest.embedded.api.defaults import defaulted
from envtest.embedded.api.patching import json_patched
from envtest.embedded.api.reading import shown
from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.statuses import Refused, details_of, internal_error_of
from envtest.embedded.api.store import Store
from envtest.embedded.shown import events
from kubernetes_rules.admission.writes import NamespaceMissing, Write, rules_match, selectors_match

if TYPE_CHECKING:
    from kubernetes_rules.admission.expressions import Compiled

Object = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_MUTATING, _VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
_DRY = ("None", "NoneOnDryRun")
_ALL_GATES: frozenset[str] = frozenset()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a configuration; ``key`` identifies it."""

    key: tuple[str, int]
    mutates: bool
    spec: Object
    conditions: Sequence[Compiled]

    @property
    def name(self) -> str:
        """Its name, which is that of a domain."""
        return str(self.spec["name"])


class _CallError(Exception):
    """A webhook could not be asked, or gave no valid answer: its failure policy decides."""


class Webhooks:
    """A mutator and a validator of a server. Thread-safe.

    ``resolve_service`` says where the Services of webhooks are; without it none can be reached.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        gate: Gate,
        resolve_service: ResolveService | None = None,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._authorize = may(gate)
        self._calls = WebhookCalls(store, resolve_service)
        self._hooks: dict[str, tuple[int, tuple[Hook, ...]]] = {}

    def mutate(self, attributes: Attributes) -> Object | None:
        """The object after the mutating webhooks; raises Refused."""
        hooks = self._hooks_of(_MUTATING)
        # Where none matches the object of the client, none can change it so that another one matches.
        if not hooks or not self._asked(hooks, attributes):
            return attributes.item
        return _Mutation(self, attributes).run(hooks)

    def validate(self, attributes: Attributes) -> None:
        """Ask the validating webhooks, each of them even if another one refuses; raises Refused."""
        hooks = self._hooks_of(_VALIDATING)
        refusals = []
        # kube-apiserver asks them at the same time, and answers with the refusal that comes first.
        for hook in self._asked(hooks, attributes) if hooks else ():
            called = self.called_resource(hook, attributes)
            try:
                if called is not None:
                    self.ask(hook, called, attributes)
            except Refused as refused:
                refusals.append(refused)
        if refusals:
            raise refusals[0]

    def called_resource(self, hook: Hook, attributes: Attributes) -> Resource | None:
        """The resource with which to ask a webhook about a write; None where it is not to be asked.

        Raises Refused: 404 where the namespace is not there, 403 where a condition cannot be evaluated.
        """
        called = self._matching(hook, write_of(attributes, self._catalogue))
        return called if called is not None and self._conditions_match(hook, called, attributes) else None

    def _asked(self, hooks: Sequence[Hook], attributes: Attributes) -> Sequence[Hook]:
        """The webhooks whose rules and selectors match a write."""
        write = write_of(attributes, self._catalogue)
        return () if write.is_exempt else [hook for hook in hooks if self._matching(hook, write)]

    def _matching(self, hook: Hook, write: Write) -> Resource | None:
        """The resource under which rules and selectors match; raises Refused (404)."""
        missing = None
        try:
            if not selectors_match(hook.spec, write, self._namespace):
                return None
        except NamespaceMissing as error:
            # It counts only where the rules match.
            missing = error
        found = rules_match(hook.spec.get("rules") or (), write, hook.spec.get("matchPolicy"))
        if found is not None and missing is not None:
            details = details_of("", "namespaces", write.namespace)
            raise Refused(404, str(missing), details=details) from missing
        return None if found is None else self._catalogue.find(*found, write.resource)

    def _conditions_match(self, hook: Hook, called: Resource, attributes: Attributes) -> bool:
        if not hook.conditions:
            return True
        # The whole of CEL, which a cluster without conditions does not load.
        from kubernetes_rules.admission.conditions import ConditionsFailed, conditions_match
        from kubernetes_rules.admission.expressions import Inputs

        resource = attributes.resource
        write = write_of(attributes, self._catalogue, called)
        kind = kind_of(called, write.subresource)
        values = Inputs(write, authorize=self._authorize).values(kind, (called.group, called.version))
        try:
            return conditions_match(hook.conditions, values, hook.spec.get("failurePolicy"))
        except ConditionsFailed as error:
            text = f'{resource.qualified_name} "{attributes.name}" is forbidden: {error}'
            details = details_of(resource.group, resource.plural, attributes.name)
            raise Refused(403, text, details=details) from error

    def ask(self, hook: Hook, called: Resource, attributes: Attributes) -> Verdict | None:
        """What a webhook says about a write that it allows; None where it failed and that is ignored.

        Raises Refused where the webhook denies the write, or has failed.
        """
        if attributes.is_dry and hook.spec.get("sideEffects") not in _DRY:
            raise Refused(400, f'admission webhook "{hook.name}" does not support dry run')
        try:
            verdict = self._called(hook, called, attributes)
        except _CallError as error:
            text = f'failed calling webhook "{hook.name}": {error}'
            if hook.spec.get("failurePolicy") == "Ignore":
                _log.info("%s", text)
                return None
            raise internal_error_of(text) from error
        # Each text once, however many webhooks have it.
        attributes.warnings.extend(one for one in verdict.warnings if one not in attributes.warnings)
        if not verdict.allowed:
            raise refused_by(verdict)
        return verdict

    def _called(self, hook: Hook, called: Resource, attributes: Attributes) -> Verdict:
        spec, uid = hook.spec, str(uuid.uuid4())
        versions = spec.get("admissionReviewVersions") or ()
        version = next((one for one in versions if one in REVIEW_VERSIONS), None)
        if version is None:
            text = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise _CallError(f"could not create admission objects: {text}")
        write = write_of(attributes, self._catalogue, called)
        review = review_of(write, attributes.resource, called, version, uid)
        try:
            data = self._calls.call(spec["clientConfig"], review, spec.get("timeoutSeconds") or 10)
            return verdict_of(data, version, uid, hook.name, mutates=hook.mutates)
        except CallFailed as error:
            raise _CallError(f"failed to call webhook: {error}") from error
        except Misunderstood as error:
            raise _CallError(str(error)) from error

    def _hooks_of(self, plural: str) -> Sequence[Hook]:
        """All webhooks of a kind, in the order of the names of their configurations."""
        collection = (_GROUP, plural)
        version = self._store.last_change(collection)
        if not version:
            return ()
        known = self._hooks.get(plural)
        if known is None or known[0] != version:
            hooks = tuple(
                Hook(
                    (item["metadata"]["name"], index),
                    plural == _MUTATING,
                    spec,
                    _compiled(spec.get("matchConditions") or ()),
                )
                for _, item in self._store.items(collection)
                for index, spec in enumerate(item.get("webhooks") or ())
            )
            known = self._hooks[plural] = version, hooks
        return known[1]

    def _namespace(self, name: str) -> Object | None:
        return self._store.get(NAMESPACES, ("", name))


class _Mutation:
    """The mutating webhooks at one write, called again where a later one has changed the object."""

    def __init__(self, webhooks: Webhooks, attributes: Attributes) -> None:
        self._webhooks = webhooks
        self._attributes = attributes
        self._item = attributes.item
        if self._item is not None and not attributes.request.subresource:
            # A webhook sees the defaults.
            self._item = self._defaulted(copy.deepcopy(self._item))
        self._again: set[tuple[str, int]] = set()
        self._called_before: set[tuple[str, int]] = set()

    def run(self, hooks: Sequence[Hook]) -> Object | None:
        """The object as a client would send it; that of the write itself where nothing changed."""
        changed = [self._ask(hook) for hook in hooks]
        if any(changed):
            # The second and last round has those that want it and were called before a change.
            changed += [self._ask(hook) for hook in hooks if hook.key in self._again]
        if not any(changed) or self._item is None:
            return self._attributes.item
        return shown(self._attributes.resource, self._item)

    def _ask(self, hook: Hook) -> bool:
        """Whether the webhook has changed the object."""
        called = self._webhooks.called_resource(hook, replace(self._attributes, item=self._item))
        if called is None:
            return False
        verdict = self._webhooks.ask(hook, called, replace(self._attributes, item=self._item))
        changed = self._patch(hook, called, verdict.patch) if verdict is not None else False
        if changed:
            self._again |= self._called_before
            self._called_before = set()
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            self._called_before.add(hook.key)
        return changed

    def _defaulted(self, item: Object) -> Object:
        plural, old = self._attributes.resource.plural, self._attributes.old
        return defaulted(item, plural, _ALL_GATES, old)

    def _patch(self, hook: Hook, called: Resource, operations: Sequence[Any]) -> bool:
        if not operations:
            return False
        subresource = self._attributes.request.subresource
        if self._item is None:
            text = "attempted to modify the object, which is not supported for this operation"
            raise internal_error_of(f'admission webhook "{hook.name}" {text}')
        before = after = form_of(self._attributes, called, self._item)
        for operation in operations:
            try:
                after = json_patched(after, [operation])
            except Refused as refused:
                raise internal_error_of(_patch_fault(operation)) from refused
        if after == before:
            return False
        if subresource == subresources.SCALE:
            self._item = subresources.scaled(self._item, after)
        else:
            self._item = events.to_core(after) if called.group == events.GROUP else after
        if not subresource:
            self._item = self._defaulted(self._item)
        return True


def _compiled(conditions: Sequence[Object]) -> Sequence[Compiled]:
    if not conditions:
        return ()
    from kubernetes_rules.admission.conditions import compile_conditions
    from kubernetes_rules.admission.expressions import Scope

    return compile_conditions(conditions, Scope(has_params=False, composes=False))


def _patch_fault(operation: Object) -> str:
    """Why an operation cannot be applied, as the library of kube-apiserver says it (evanphx/json-patch)."""
    kind, path = operation.get("op"), str(operation.get("path") or "")
    if kind == "test":
        return f"testing value {path} failed: test failed"
    if kind == "remove":
        key = path.rpartition("/")[2]
        return f"error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
    return f'{kind} operation does not apply: doc is missing path: "{path}": missing value'
