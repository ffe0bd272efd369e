"""Puts the status of devices into a claim as the API server stores it, and changes nothing else of it.

An allocation is immutable, and the API server compares the opaque configurations in it as they were written.
Each patch, and each object that is sent as JSON, has the server write them anew: compact, by an apply with
sorted keys. So of a claim whose configuration was written otherwise no patch of the status is taken. In the
encoding in which it is stored (protobuf) the configuration is bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from proto import stored_claim_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


class NotStoredBytes(Exception):
    """The server answered something else than an object in its protobuf encoding."""


def uid_of(stored: bytes) -> str:
    """The UID of the claim; raises NotStoredBytes."""
    return _claim(_envelope(stored)).metadata.uid


def with_statuses(stored: bytes, entries: Iterable[Mapping[str, Any]]) -> bytes:
    """The claim with these entries of ``status.devices``, which are in the form of JSON.

    What is there of other devices, and conditions of other types, stays. Raises NotStoredBytes.
    """
    envelope = _envelope(stored)
    claim = _claim(envelope)
    for entry in entries:
        _put(claim.status.devices, entry)
    envelope.raw = claim.SerializeToString()
    return _MAGIC + envelope.SerializeToString()


def _envelope(stored: bytes) -> pb.Unknown:
    if not stored.startswith(_MAGIC):
        raise NotStoredBytes("the body has not the protobuf envelope of Kubernetes")
    try:
        return pb.Unknown.FromString(stored[len(_MAGIC) :])
    except DecodeError as error:
        raise NotStoredBytes(str(error)) from error


def _claim(envelope: pb.Unknown) -> pb.ResourceClaim:
    try:
        return pb.ResourceClaim.FromString(envelope.raw)
    except DecodeError as error:
        raise NotStoredBytes(str(error)) from error


def _put(
    devices: RepeatedCompositeFieldContainer[pb.AllocatedDeviceStatus], entry: Mapping[str, Any]
) -> None:
    key = (entry["driver"], entry["pool"], entry["device"], entry.get("shareID", ""))
    for one in devices:
        if (one.driver, one.pool, one.device, one.share_id) == key:
            device = one
            break
    else:
        device = devices.add(driver=key[0], pool=key[1], device=key[2], share_id=key[3] or None)
    device.data.raw = json.dumps(entry["data"], separators=(",", ":")).encode()
    told = {condition["type"]: condition for condition in entry["conditions"]}
    kept = [condition for condition in device.conditions if condition.type not in told]
    del device.conditions[:]
    device.conditions.extend([*kept, *map(_condition, told.values())])


def _condition(told: Mapping[str, Any]) -> pb.Condition:
    since = datetime.fromisoformat(told["lastTransitionTime"])
    return pb.Condition(
        type=told["type"],
        status=told["status"],
        reason=told["reason"],
        message=told["message"],
        last_transition_time=pb.Time(seconds=int(since.timestamp())),
    )
