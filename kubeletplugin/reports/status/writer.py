"""Writes the status of one claim, and posts what changed about the health of its devices."""

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
"""A claim that more pods have at once is told of on the claim alone."""

Post = Callable[[Reference, EventReason, str], None]

Object = dict[str, Any]


class StatusWriter:
    """Writes with server-side apply, so only our own fields: what others say of a claim stays.

    If the API server does not take an apply, since that would rewrite the claim's allocation, the claim is
    replaced as it is stored (stored_bytes). An object that changed meanwhile is then refused, and written the
    next time.
    """

    def __init__(self, client: KubeClient, post: Post) -> None:
        self._client = client
        self._post = post
        self._lock = threading.Lock()
        self._fresh: set[str] = set()
        self._as_stored: set[str] = set()

    def saw(self, stored: Mapping[str, Any]) -> None:
        """Take in a claim that was read to prepare it.

        If it has no status of ours, it need not be read again before writing.
        """
        uid = (stored.get("metadata") or {}).get("uid", "")
        devices = (stored.get("status") or {}).get("devices") or ()
        with self._lock:
            if any(entry.get("driver") == DRIVER_NAME for entry in devices):
                self._fresh.discard(uid)
                return
            if len(self._fresh) >= _MOST_FRESH:
                self._fresh.clear()  # claims that could never be prepared; a look at the others costs little
            self._fresh.add(uid)

    def forget(self, uid: str) -> None:
        """Let go of what is known of a claim."""
        with self._lock:
            self._fresh.discard(uid)
        self._as_stored.discard(uid)

    def write(self, claim: ClaimStatus) -> bool:
        """Have the status tell this; whether it does now.

        It does not where what it says of a device's health stays, since nobody has looked at that device yet.
        Raises ApiError: Invalid where the API server takes it in no form.
        """
        if self._write_fresh(claim):
            return True
        stored = self._client.get(self._path(claim), timeout_seconds=_REQUEST_SECONDS)
        if stored.get("metadata", {}).get("uid") != claim.uid:
            return True  # another one of the same name
        entries = statuses_to_apply(claim, stored, self._now())
        if not entries:
            return _tells_all(claim, (stored.get("status") or {}).get("devices") or ())
        self._send(claim, entries)
        status = stored["status"]
        self._tell(claim, status, entries)
        return _tells_all(claim, entries)

    def _write_fresh(self, claim: ClaimStatus) -> bool:
        """Write without reading a claim that has no status of ours yet; whether that succeeded."""
        with self._lock:
            is_fresh = claim.uid in self._fresh
            self._fresh.discard(claim.uid)
        if not is_fresh or any(device.ready.status != "True" for device in claim.devices):
            return False
        try:
            self._apply(claim, [device.status({}, self._now()) for device in claim.devices])
        except Invalid:
            return False  # it may have lost its allocation: the look tells
        return True

    def _send(self, claim: ClaimStatus, entries: list[Object]) -> None:
        if claim.uid in self._as_stored:
            self._replace(claim, entries)
            return
        try:
            self._apply(claim, entries)
        except Invalid:
            if not self._replace(claim, entries):
                raise
            self._as_stored.add(claim.uid)

    def _apply(self, claim: ClaimStatus, entries: list[Object]) -> None:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            # The UID makes the API server refuse the write when the claim is replaced meanwhile.
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": entries},
        }
        self._client.patch(
            f"{self._path(claim)}/status",
            body,
            "application/apply-patch+yaml",
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            timeout_seconds=_REQUEST_SECONDS,
        )

    def _replace(self, claim: ClaimStatus, entries: list[Object]) -> bool:
        """Write into the claim as it is stored; False if the server does not show it so afterwards."""
        from kubeletplugin.reports.status import stored_bytes

        path = self._path(claim)
        try:
            stored = self._client.get_bytes(path, stored_bytes.CONTENT_TYPE, timeout_seconds=_REQUEST_SECONDS)
            if stored_bytes.uid_of(stored) != claim.uid:
                return True
            body = stored_bytes.with_statuses(stored, entries)
        except (Invalid, stored_bytes.NotStoredBytes):
            return False
        self._client.replace_bytes(
            f"{path}/status",
            body,
            stored_bytes.CONTENT_TYPE,
            {"fieldManager": FIELD_MANAGER},
            timeout_seconds=_REQUEST_SECONDS,
        )
        return True

    def _tell(self, claim: ClaimStatus, status: Mapping[str, Any], entries: list[Object]) -> None:
        change = health_change(status.get("devices") or (), entries)
        if not (change.sick or change.well):
            return
        about = Reference("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid, claim.namespace)
        pods = [
            Reference("v1", "Pod", str(user["name"]), str(user["uid"]), claim.namespace)
            for user in status.get("reservedFor") or ()
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


def _tells_all(claim: ClaimStatus, entries: Any) -> bool:
    """Whether the health of each device stands in the entries as it is known, so that nothing is to come."""
    told = {key_of(one): ready_of(one) for one in entries}
    return all(
        (found := told.get(device.key)) is None or found.get("status") == device.ready.status
        for device in claim.devices
        if not device.is_seen
    )


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Sentences for people: of the devices that have fallen ill, or otherwise ill, and of those that are well
    again.
    """

    sick: tuple[str, ...] = ()
    well: tuple[str, ...] = ()


def health_change(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> HealthChange:
    """The difference between the stored entries of ``status.devices`` and those that are written.

    A memory limit that is not enforced is not a question of the GPU's health, and has events of its own.
    """
    there = {key_of(entry): ready_of(entry) for entry in before}
    sick, well = [], []
    for entry in after:
        now, was = ready_of(entry), there.get(key_of(entry))
        if now is None:
            continue
        if _is_ill(now):
            if was is None or not _is_ill(was) or was.get("reason") != now["reason"]:
                sick.append(f"{entry['device']}: {now['message'] or now['reason']}")
        elif was is not None and _is_ill(was):
            well.append(f"{entry['device']} is well again")
    return HealthChange(tuple(sick), tuple(well))


def _is_ill(ready: Mapping[str, Any]) -> bool:
    return ready.get("status") != "True" and ready.get("reason") != NOT_HELD
