"""Makes claims from templates, and takes back reservations and claims, as kube-controller-manager does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driver.errors import DriverError
from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.change_loop import Controller, Turns, earliest
from envtest.embedded.control.objects import CLAIMS, PODS, TEMPLATES, is_deleted, is_terminal, uid_of
from envtest.embedded.control.pod_claims import (
    FINALIZER,
    POD_CLAIM_ANNOTATION,
    ClaimNotUsable,
    claims_of_pod,
    is_reserved,
    owner_reference,
    user_of,
    users_of,
)
from kubernetes_rules.pod_claims import controlling_pod

Object = dict[str, Any]

_COMPONENT = "resource_claim"
NAME = "claim controller"
_LONGEST_BASE = 57


class NoTemplate(DriverError):
    """A claim cannot be made; ``what`` has the controller's words."""


class EmbeddedClaimController(Controller):
    """Looks at all pods and claims again after every change of one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (PODS, CLAIMS, TEMPLATES))
        self._pod_turns, self._claim_turns = Turns(NAME), Turns(NAME)

    def sync(self) -> float | None:
        """Bring all claims in order once; in how many seconds one that failed is due again.

        Claims are listed before pods, so that no pod that ends between the two is given a second claim,
        and a claim whose pod is not listed has none.
        """
        claims = self._objects.list(CLAIMS)
        pods = {uid_of(pod): pod for pod in self._objects.list(PODS)}
        made = {
            (owner, claim["metadata"].get("annotations", {}).get(POD_CLAIM_ANNOTATION)): claim
            for claim in claims
            if (owner := controlling_pod(claim)) is not None and not is_deleted(claim)
        }
        return earliest(
            self._pod_turns.give(pods.values(), lambda pod: self._sync_pod(pod, made)),
            self._claim_turns.give(claims, lambda claim: self._sync_claim(claim, pods)),
        )

    def _sync_pod(self, pod: Object, made: Mapping[Any, Object]) -> None:
        if not is_deleted(pod) and not is_terminal(pod) and (pod.get("spec") or {}).get("resourceClaims"):
            self._make_claims(pod, made)
            self._reserve_of_bound(pod)

    def _make_claims(self, pod: Object, made: Mapping[Any, Object]) -> None:
        """Make the claims that the pod's templates ask for, and note their names in its status."""
        before = {one["name"]: one.get("resourceClaimName") for one in _statuses(pod)}
        names = dict(before)
        mine = (pod["metadata"]["name"], uid_of(pod))
        for entry in pod["spec"]["resourceClaims"]:
            if not entry.get("resourceClaimTemplateName"):
                continue
            claim = made.get((mine, entry["name"]))
            try:
                claim = claim or self._create(pod, entry)
            except NoTemplate as error:
                text = f"PodResourceClaim {entry['name']}: {error.what}"
                self._objects.post_event(
                    "Pod", pod, "Warning", "FailedResourceClaimCreation", text, _COMPONENT
                )
                return
            names[entry["name"]] = claim["metadata"]["name"]
        if names != before:
            statuses = [{"name": name, "resourceClaimName": names[name]} for name in sorted(names)]
            status = {"phase": "Pending", **pod.get("status", {}), "resourceClaimStatuses": statuses}
            self._objects.replace_status(PODS, pod, status)

    def _create(self, pod: Object, entry: Mapping[str, Any]) -> Object:
        """A claim from the template of an entry. Raises NoTemplate."""
        metadata, name = pod["metadata"], entry["resourceClaimTemplateName"]
        template = self._objects.find(TEMPLATES, metadata["namespace"], name)
        if template is None:
            raise NoTemplate(
                f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
            )
        wanted = template["spec"].get("metadata", {})
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": _base(metadata["name"], entry["name"]),
                "annotations": {**wanted.get("annotations", {}), POD_CLAIM_ANNOTATION: entry["name"]},
                "labels": dict(wanted.get("labels", {})),
                "ownerReferences": [owner_reference(pod)],
            },
            "spec": template["spec"]["spec"],
        }
        try:
            return self._objects.create(CLAIMS, metadata["namespace"], claim)
        except Refused as refused:
            raise NoTemplate(f"create ResourceClaim : {refused}") from refused

    def _reserve_of_bound(self, pod: Object) -> None:
        """A pod that somebody bound without the scheduler gets its reservations here."""
        if not pod["spec"].get("nodeName"):
            return
        try:
            found = claims_of_pod(self._objects, pod)
        except ClaimNotUsable:
            return  # looked at again when the claim comes
        for _, claim in found:
            if claim.get("status", {}).get("allocation") and not is_reserved(claim, pod):
                users = [*users_of(claim), user_of(pod)]
                self._objects.replace_status(CLAIMS, claim, {**claim["status"], "reservedFor": users})

    def _sync_claim(self, claim: Object, pods: Mapping[str, Object]) -> None:
        """Remove the reservations of pods that are gone or have ended, and with the last the allocation."""
        users = users_of(claim)
        left = [user for user in users if not _is_done(user, pods)]
        held = FINALIZER in claim["metadata"].get("finalizers", ())
        if len(left) < len(users):
            status = {**claim["status"], "reservedFor": left}
            if not left:
                status = {}
            stored = self._objects.replace_status(CLAIMS, claim, status)
            if held and not left:
                stored = self._without_finalizer(stored)
            claim = stored
        elif held and is_deleted(claim) and not left:
            if claim.get("status", {}).get("allocation"):
                claim = self._objects.replace_status(CLAIMS, claim, {})
            claim = self._without_finalizer(claim)
        if not left and not is_deleted(claim):
            self._delete_unneeded(claim, pods)

    def _delete_unneeded(self, claim: Object, pods: Mapping[str, Object]) -> None:
        """A generated claim goes as soon as its pod has ended, though the pod itself may stay.

        One whose pod went while the claim was made goes as well: the garbage collector of a real cluster
        looks for owners that are absent.
        """
        owner = controlling_pod(claim)
        if owner is None:
            return
        pod = pods.get(owner[1])
        if pod is None or _will_not_run(pod):
            self._objects.delete(CLAIMS, claim)

    def _without_finalizer(self, claim: Object) -> Object:
        finalizers = [one for one in claim["metadata"]["finalizers"] if one != FINALIZER]
        metadata = {**claim["metadata"], "finalizers": finalizers}
        return self._objects.replace(CLAIMS, {**claim, "metadata": metadata})


def _is_done(user: Mapping[str, Any], pods: Mapping[str, Object]) -> bool:
    """Whether a pod that a claim is reserved for is gone or has ended; nothing is known of other users."""
    if user.get("apiGroup") or user["resource"] != "pods":
        return False
    pod = pods.get(user["uid"])
    return pod is None or _will_not_run(pod)


def _will_not_run(pod: Object) -> bool:
    """Whether no container of the pod runs or ever will."""
    return is_terminal(pod) or (is_deleted(pod) and not (pod.get("spec") or {}).get("nodeName"))


def _base(pod: str, entry: str) -> str:
    """The beginning of a generated name: pod and claim, both shortened where they are too long together."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _LONGEST_BASE:
        return whole
    pod_length = len(pod) * _LONGEST_BASE // len(whole)
    entry_length = len(entry) * _LONGEST_BASE // len(whole)
    return f"{pod[:pod_length]}-{entry[:entry_length]}"


def _statuses(pod: Mapping[str, Any]) -> list[Object]:
    return list(pod.get("status", {}).get("resourceClaimStatuses", ()))
