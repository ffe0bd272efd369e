"""Writes the status of one claim, and posts events about changes in the health of its devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.event_reasons import EventReason
from driver.kube.client import KubeClient
from driver.kube.errors import Invalid
from driver.kube.events import Reference
from driver.kube.paths import claim_path
from kubeletplugin.reports.device_status import NOT_HELD, ClaimStatus, key_of, ready_of, statuses_to_apply

FIELD_MANAGER = "gpu-dra-kubeletplugin"

_REQUEST_SECONDS = 5.0
_MOST_FRESH = 1024
_MOST_PODS = 4
"""If more pods than this have a claim, events are posted for the claim alone."""

Post = Callable[[Reference, EventReason, str], None]

Object = dict[str, Any]


class StatusWriter:
    """Writes with server-side apply, which changes our own fields only.

    For an apply, the API server encodes the configurations in the allocation again: compact, with sorted
    keys. If one was written in another way, it sees a changed allocation and refuses: such a claim has no
    status.
    """

    def __init__(self, client: KubeClient, post: Post) -> None:
        self._client = client
        self._post = post
        self._lock = threading.Lock()
        # The UIDs of claims that were read and had no status of ours.
        self._fresh: set[str] = set()

    def saw(self, stored: Mapping[str, Any]) -> None:
        """Called with each claim that was read to prepare it.

        If it has no status of ours, it need not be read again before writing.
        """
        uid = (stored.get("metadata") or {}).get("uid", "")
        devices = (stored.get("status") or {}).get("devices") or ()
        with self._lock:
            if any(entry.get("driver") == DRIVER_NAME for entry in devices):
                self._fresh.discard(uid)
                return
            if len(self._fresh) >= _MOST_FRESH:
                # Most of so many could never be prepared. The others are only read again.
                self._fresh.clear()
            self._fresh.add(uid)

    def forget(self, uid: str) -> None:
        """Forget what is known about a claim."""
        with self._lock:
            self._fresh.discard(uid)

    def write(self, claim: ClaimStatus) -> bool:
        """Write the status; returns whether it is complete now.

        It is not complete if it still has an old health of a device that was not checked yet. Raises
        ApiError, which is Invalid if the API server refuses this status for good.
        """
        if self._write_fresh(claim):
            return True
        stored = self._client.get(self._path(claim), timeout_seconds=_REQUEST_SECONDS)
        if stored.get("metadata", {}).get("uid") != claim.uid:
            return True  # another claim of the same name
        entries = statuses_to_apply(claim, stored, self._now())
        if not entries:
            return _is_complete(claim, (stored.get("status") or {}).get("devices") or ())
        self._apply(claim, entries)
        self._post_changes(claim, stored["status"], entries)
        return _is_complete(claim, entries)

    def _write_fresh(self, claim: ClaimStatus) -> bool:
        """Write to a claim without our status, without reading it first; returns whether that succeeded."""
        with self._lock:
            is_fresh = claim.uid in self._fresh
            self._fresh.discard(claim.uid)
        # A device that is not ready needs an event, for which the pods of the claim have to be read.
        if not is_fresh or any(device.ready.status != "True" for device in claim.devices):
            return False
        try:
            self._apply(claim, [device.status({}, self._now()) for device in claim.devices])
        except Invalid:
            return False  # it may have lost its allocation, which reading it will show
        return True

    def _apply(self, claim: ClaimStatus, entries: list[Object]) -> None:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            # The UID makes the API server refuse the write if another claim has the name by now.
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": entries},
        }
        self._client.patch(
            f"{self._path(claim)}/status",
            body,
            # JSON is YAML. The API server accepts an apply with this content type only.
            "application/apply-patch+yaml",
            # Without force, the server refuses fields that another manager has set.
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            timeout_seconds=_REQUEST_SECONDS,
        )

    def _post_changes(self, claim: ClaimStatus, status: Mapping[str, Any], entries: list[Object]) -> None:
        change = health_change(status.get("devices") or (), entries)
        if not (change.sick or change.well):
            return
        about = Reference("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid, claim.namespace)
        pods = [
            Reference("v1", "Pod", str(user["name"]), str(user["uid"]), claim.namespace)
            for user in status.get("reservedFor") or ()
            # reservedFor may name other objects, which have an API group.
            if user.get("resource") == "pods" and not user.get("apiGroup")
        ]
        for one in (about, *(pods if len(pods) <= _MOST_PODS else ())):
            if change.sick:
                self._post(one, EventReason.GPU_SICK, "; ".join(change.sick))
            if change.well:
                self._post(one, EventReason.GPU_WELL, "; ".join(change.well))

    def _now(self) -> str:
        return self._client.server_time().strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _path(claim: ClaimStatus) -> str:
        return claim_path(claim.namespace, claim.name)


def _is_complete(claim: ClaimStatus, entries: Any) -> bool:
    """Whether the entries need no further write once the devices that were not checked yet are checked."""
    conditions = {key_of(one): ready_of(one) for one in entries}
    return all(
        (found := conditions.get(device.key)) is None or found.get("status") == device.ready.status
        for device in claim.devices
        if not device.is_checked
    )


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Sentences about devices that became faulty, or faulty in another way, and about recovered ones."""

    sick: tuple[str, ...] = ()
    well: tuple[str, ...] = ()


def health_change(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> HealthChange:
    """The difference between the stored entries of ``status.devices`` and those that are written.

    Memory limits that are not enforced do not count: they are not about the GPU's health, and have events of
    their own.
    """
    there = {key_of(entry): ready_of(entry) for entry in before}
    sick, well = [], []
    for entry in after:
        now, was = ready_of(entry), there.get(key_of(entry))
        if now is None:
            continue
        if _is_ill(now):
            # A new reason is news, a new message alone is not.
            if was is None or not _is_ill(was) or was.get("reason") != now["reason"]:
                sick.append(f"{entry['device']}: {now['message'] or now['reason']}")
        elif was is not None and _is_ill(was):
            well.append(f"{entry['device']} is healthy again")
    return HealthChange(tuple(sick), tuple(well))


def _is_ill(ready: Mapping[str, Any]) -> bool:
    return ready.get("status") != "True" and ready.get("reason") != NOT_HELD
