"""Makes claims from templates, and ends reservations and claims, as kube-controller-manager does.

Go: pkg/controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds, pod_claims
from envtest.embedded.control.change_loop import Controller, ObjectBackOff, earliest
from envtest.embedded.control.objects import is_deleted, is_terminal, uid_of
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules.pod_claims import controlling_pod

Object = dict[str, Any]

_COMPONENT = "resource_claim"
NAME = "claim controller"
# 63 characters less a hyphen and the five random ones that the API server adds.
_LONGEST_BASE = 57


class NoTemplate(Exception):
    """A claim cannot be made; the message is in the real controller's words."""


class EmbeddedClaimController(Controller):
    """Reconciles all pods and claims after every change of one, or of a template."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.PODS, kinds.CLAIMS, kinds.TEMPLATES))
        self._pod_back_off, self._claim_back_off = ObjectBackOff(NAME), ObjectBackOff(NAME)

    def sync(self) -> float | None:
        """Reconcile all claims once; returns in how many seconds one that failed is due again.

        Claims are listed before pods, so that no pod that ends between the two is given a second claim,
        and a claim whose pod is not listed has none.
        """
        claims = self._objects.list(kinds.CLAIMS)
        pods = {uid_of(pod): pod for pod in self._objects.list(kinds.PODS)}
        made = {
            (owner, claim["metadata"].get("annotations", {}).get(pod_claims.POD_CLAIM_ANNOTATION)): claim
            for claim in claims
            if (owner := controlling_pod(claim)) is not None
        }
        return earliest(
            self._pod_back_off.for_each(pods.values(), lambda pod: self._sync_pod(pod, made)),
            self._claim_back_off.for_each(claims, lambda claim: self._sync_claim(claim, pods)),
        )

    def _sync_pod(self, pod: Object, made: Mapping[Any, Object]) -> None:
        if not is_deleted(pod) and not is_terminal(pod) and (pod.get("spec") or {}).get("resourceClaims"):
            self._make_claims(pod, made)
            self._reserve_of_bound(pod)

    def _make_claims(self, pod: Object, made: Mapping[Any, Object]) -> None:
        """Make the claims of the pod's templates, and write their names into its status."""
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
                text = f"PodResourceClaim {entry['name']}: {error}"
                self._objects.post_event(pod, "Warning", "FailedResourceClaimCreation", text, _COMPONENT)
                return
            names[entry["name"]] = claim["metadata"]["name"]
        # The scheduler and the kubelet find a generated claim by this status alone.
        if names != before:
            statuses = [{"name": name, "resourceClaimName": names[name]} for name in sorted(names)]
            status = {"phase": "Pending", **pod.get("status", {}), "resourceClaimStatuses": statuses}
            self._objects.replace_status(kinds.PODS, pod, status)

    def _create(self, pod: Object, entry: Mapping[str, Any]) -> Object:
        """A claim from the template of an entry. Raises NoTemplate."""
        metadata, name = pod["metadata"], entry["resourceClaimTemplateName"]
        template = self._objects.find(kinds.TEMPLATES, metadata["namespace"], name)
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
                # Says which entry of the pod the claim was made for: its name is generated.
                "annotations": {
                    **wanted.get("annotations", {}),
                    pod_claims.POD_CLAIM_ANNOTATION: entry["name"],
                },
                "labels": dict(wanted.get("labels", {})),
                "ownerReferences": [pod_claims.owner_reference(pod)],
            },
            "spec": template["spec"]["spec"],
        }
        try:
            return self._objects.create(kinds.CLAIMS, metadata["namespace"], claim)
        except Refused as refused:
            raise NoTemplate(f"create ResourceClaim : {refused}") from refused

    def _reserve_of_bound(self, pod: Object) -> None:
        """Reserve the claims of a pod that got its node without the scheduler (spec.nodeName)."""
        if not pod["spec"].get("nodeName"):
            return
        try:
            found = pod_claims.claims_of_pod(self._objects, pod)
        except pod_claims.ClaimNotUsable:
            return
        for _, claim in found:
            if claim.get("status", {}).get("allocation") and not pod_claims.is_reserved(claim, pod):
                users = [*pod_claims.users_of(claim), pod_claims.user_of(pod)]
                self._objects.replace_status(kinds.CLAIMS, claim, {**claim["status"], "reservedFor": users})

    def _sync_claim(self, claim: Object, pods: Mapping[str, Object]) -> None:
        """Remove reservations of pods that are gone or have ended, and the allocation with the last one."""
        users = pod_claims.users_of(claim)
        left = [user for user in users if not _is_done(user, pods)]
        held = pod_claims.FINALIZER in claim["metadata"].get("finalizers", ())
        if len(left) < len(users):
            # The allocation goes in the same write as the last reservation: devices are free from then on.
            status = {**claim["status"], "reservedFor": left}
            if not left:
                status = {}
            stored = self._objects.replace_status(kinds.CLAIMS, claim, status)
            # Only once the devices are free: the finalizer keeps a deleted claim until then.
            if held and not left:
                stored = self._without_finalizer(stored)
            claim = stored
        # Nobody ever used it, or its users were removed by others.
        elif held and is_deleted(claim) and not left:
            if claim.get("status", {}).get("allocation"):
                claim = self._objects.replace_status(kinds.CLAIMS, claim, {})
            claim = self._without_finalizer(claim)
        if not left and not is_deleted(claim):
            self._delete_unneeded(claim, pods)

    def _delete_unneeded(self, claim: Object, pods: Mapping[str, Object]) -> None:
        """Delete a generated claim as soon as its pod has ended, though the pod object may stay.

        A claim is deleted as well if its pod was gone before it was made, as the garbage collector of a real
        cluster does with absent owners.
        """
        owner = controlling_pod(claim)
        if owner is None:
            return
        pod = pods.get(owner[1])
        if pod is None or _will_not_run(pod):
            self._objects.delete(kinds.CLAIMS, claim)

    def _without_finalizer(self, claim: Object) -> Object:
        finalizers = [one for one in claim["metadata"]["finalizers"] if one != pod_claims.FINALIZER]
        metadata = {**claim["metadata"], "finalizers": finalizers}
        return self._objects.replace(kinds.CLAIMS, {**claim, "metadata": metadata})


def _is_done(user: Mapping[str, Any], pods: Mapping[str, Object]) -> bool:
    """Whether a claim's user is a pod that is gone or has ended; users that are not pods are never done."""
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
