"""Asks the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations about writes.

Go: k8s.io/apiserver, pkg/admission/plugin/webhook: generic/webhook.go, and dispatcher.go of mutating/ and
validating/.
"""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envtest.embedded.admission.calls import CallFailed, ResolveService, WebhookCalls
from envtest.embedded.admission.reviews import (
    Misunderstood,
    Verdict,
    kind_of,
    namespace_of,
    refused_by,
    review_of,
    verdict_of,
)
from envtest.embedded.api import subresources
from envtest.embedded.api.admission import NAMESPACES, Attributes
from envtest.embedded.api.defaults import defaulted
from envtest.embedded.api.patching import json_patched
from envtest.embedded.api.reading import shown
from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.statuses import Refused, details_of, internal_error_of
from envtest.embedded.api.store import Store
from envtest.embedded.shown import events
from kubernetes_rules.admission.match_rules import Target, is_exempt, rules_match
from kubernetes_rules.admission.webhook_configurations import REVIEW_VERSIONS
from kubernetes_rules.selectors import label_selector_matches

Object = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_MUTATING, _VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
_DRY = ("None", "NoneOnDryRun")
_ALL_GATES: frozenset[str] = frozenset()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a configuration; ``key`` tells it from all others."""

    key: tuple[str, int]
    mutates: bool
    spec: Object

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
        self, store: Store, catalogue: Catalogue, resolve_service: ResolveService | None = None
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._calls = WebhookCalls(store, resolve_service)
        self._hooks: dict[str, tuple[int, tuple[Hook, ...]]] = {}

    def mutate(self, attributes: Attributes) -> Object | None:
        """The object after the mutating webhooks; raises Refused."""
        hooks = self._hooks_for(_MUTATING, attributes)
        return _Mutation(self, attributes).run(hooks) if hooks else attributes.item

    def validate(self, attributes: Attributes) -> None:
        """Ask the validating webhooks, each of them even if another one refuses; raises Refused."""
        asked = [
            (hook, called)
            for hook in self._hooks_for(_VALIDATING, attributes)
            if (called := self.called_resource(hook, attributes)) is not None
        ]
        refusals = []
        # kube-apiserver asks them at the same time, and answers with the refusal that comes first.
        for hook, called in asked:
            try:
                self.ask(hook, called, attributes, attributes.item)
            except Refused as refused:
                refusals.append(refused)
        if refusals:
            raise refusals[0]

    def called_resource(self, hook: Hook, attributes: Attributes) -> Resource | None:
        """The resource with which to ask a webhook about a write; None where it is not to be asked.

        Raises Refused (404) where the namespace is not there.
        """
        spec, resource = hook.spec, attributes.resource
        missing = None
        try:
            if not self._selects_namespace(spec.get("namespaceSelector") or {}, attributes):
                return None
        except Refused as refused:
            # It counts only where the rules match.
            missing = refused
        if not _selects_object(spec.get("objectSelector") or {}, attributes):
            return None
        candidates = [resource]
        if spec.get("matchPolicy") == "Equivalent":
            candidates += [
                one
                for one in self._catalogue.resources
                if one.collection == resource.collection and one != resource
            ]
        rules = spec.get("rules") or ()
        found = next((one for one in candidates if rules_match(rules, _target(attributes, one))), None)
        if found is not None and missing is not None:
            raise missing
        return found

    def ask(
        self, hook: Hook, called: Resource, attributes: Attributes, item: Object | None
    ) -> Verdict | None:
        """What a webhook says about a write that it allows; None where it failed and that is ignored.

        ``item`` is the object so far. Raises Refused where the webhook denies the write, or has failed.
        """
        if attributes.is_dry and hook.spec.get("sideEffects") not in _DRY:
            raise Refused(400, f'admission webhook "{hook.name}" does not support dry run')
        try:
            verdict = self._called(hook, called, attributes, item)
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

    def _called(self, hook: Hook, called: Resource, attributes: Attributes, item: Object | None) -> Verdict:
        spec, uid = hook.spec, str(uuid.uuid4())
        versions = spec.get("admissionReviewVersions") or ()
        version = next((one for one in versions if one in REVIEW_VERSIONS), None)
        if version is None:
            text = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise _CallError(f"could not create admission objects: {text}")
        forms = [None if one is None else _form_of(attributes, called, one) for one in (item, attributes.old)]
        review = review_of(attributes, version, uid, called, *forms)
        try:
            data = self._calls.call(spec["clientConfig"], review, spec.get("timeoutSeconds") or 10)
            return verdict_of(data, version, uid, hook.name, mutates=hook.mutates)
        except CallFailed as error:
            raise _CallError(f"failed to call webhook: {error}") from error
        except Misunderstood as error:
            raise _CallError(str(error)) from error

    def _hooks_for(self, plural: str, attributes: Attributes) -> Sequence[Hook]:
        """All webhooks of a kind, in the order of the names of their configurations."""
        collection = (_GROUP, plural)
        version = self._store.last_change(collection)
        if not version or is_exempt(attributes.resource.group, attributes.resource.kind):
            return ()
        known = self._hooks.get(plural)
        if known is None or known[0] != version:
            hooks = tuple(
                Hook((item["metadata"]["name"], index), plural == _MUTATING, spec)
                for _, item in self._store.items(collection)
                for index, spec in enumerate(item.get("webhooks") or ())
            )
            known = self._hooks[plural] = version, hooks
        return known[1]

    def _selects_namespace(self, selector: Object, attributes: Attributes) -> bool:
        """Raises Refused (404) where the namespace is not there."""
        namespace = namespace_of(attributes)
        is_namespace = attributes.resource.collection == NAMESPACES
        # Objects of the whole cluster cannot be left out by it.
        if not selector or (not namespace and not is_namespace):
            return True
        changes_namespace = is_namespace and not attributes.request.subresource
        if changes_namespace and attributes.item is not None:
            return label_selector_matches(selector, _labels(attributes.item))
        found = self._store.get(NAMESPACES, ("", namespace))
        if found is None:
            details = details_of("", "namespaces", namespace)
            raise Refused(404, f'namespaces "{namespace}" not found', details=details)
        return label_selector_matches(selector, _labels(found))


class _Mutation:
    """The mutating webhooks at one write, called again where a later one has changed the object."""

    def __init__(self, webhooks: Webhooks, attributes: Attributes) -> None:
        self._webhooks = webhooks
        self._attributes = attributes
        self._item = attributes.item
        self._is_prepared = False
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
        attributes = Attributes(
            self._attributes.operation,
            self._attributes.request,
            self._attributes.resource,
            self._item,
            self._attributes.old,
            self._attributes.options,
            self._attributes.warnings,
            self._attributes.is_dry,
        )
        called = self._webhooks.called_resource(hook, attributes)
        if called is None:
            return False
        self._prepare()
        verdict = self._webhooks.ask(hook, called, attributes, self._item)
        changed = self._patch(hook, called, verdict.patch) if verdict is not None else False
        if changed:
            self._again |= self._called_before
            self._called_before = set()
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            self._called_before.add(hook.key)
        return changed

    def _prepare(self) -> None:
        """Fill in the defaults, which a webhook sees."""
        if self._item is not None and not self._is_prepared and not self._attributes.request.subresource:
            self._item = self._defaulted(copy.deepcopy(self._item))
        self._is_prepared = True

    def _defaulted(self, item: Object) -> Object:
        plural, old = self._attributes.resource.built_in, self._attributes.old
        return defaulted(item, plural, _ALL_GATES, old)

    def _patch(self, hook: Hook, called: Resource, operations: Sequence[Any]) -> bool:
        if not operations:
            return False
        subresource = self._attributes.request.subresource
        if self._item is None:
            text = "attempted to modify the object, which is not supported for this operation"
            raise internal_error_of(f'admission webhook "{hook.name}" {text}')
        before = _form_of(self._attributes, called, self._item)
        try:
            after = json_patched(before, list(operations))
        except Refused as refused:
            raise internal_error_of(str(refused)) from refused
        if after == before:
            return False
        if subresource == subresources.SCALE:
            self._item = subresources.scaled(called, self._item, after)
        else:
            self._item = events.to_core(after) if called.group == events.GROUP else after
        if not subresource:
            self._item = self._defaulted(self._item)
        return True


def _form_of(attributes: Attributes, called: Resource, item: Object) -> Object:
    """An object as a webhook sees it: in the version of its rules, complete where a client's body is not."""
    request = attributes.request
    kind = kind_of(called, request.subresource)
    version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
    form = {"kind": kind["kind"], "apiVersion": version, **shown(called, item, request.subresource)}
    if request.namespace:
        form["metadata"] = {**(form.get("metadata") or {}), "namespace": request.namespace}
    return form


def _target(attributes: Attributes, resource: Resource) -> Target:
    return Target(
        attributes.operation,
        resource.group,
        resource.version,
        resource.plural,
        attributes.request.subresource,
        namespace_of(attributes),
    )


def _selects_object(selector: Object, attributes: Attributes) -> bool:
    """Whether the selector selects the object, before or after the write."""
    if not selector:
        return True
    found = [one for one in (attributes.item, attributes.old) if one is not None]
    return any(label_selector_matches(selector, _labels(one)) for one in found)


def _labels(item: Object) -> Object:
    return (item.get("metadata") or {}).get("labels") or {}
