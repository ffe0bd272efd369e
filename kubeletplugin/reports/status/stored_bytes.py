"""Puts the status of devices into a claim in the encoding that the API server stores, protobuf.

An allocation is immutable, and the API server compares the opaque configurations in it byte for byte. For a
patch, and for an object that is sent as JSON, the server encodes these configurations again: compact, and for
an apply with sorted keys. If a configuration was written in another way, the server then sees a changed
allocation and refuses the write. In protobuf the configuration is a field of bytes, which stays as it is.
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
"""Every object in this encoding begins with these bytes, followed by the message Unknown with the object."""


class NotStoredBytes(Exception):
    """The server's answer is not an object in its protobuf encoding."""


def uid_of(stored: bytes) -> str:
    """The UID of the claim; raises NotStoredBytes."""
    return _claim(_envelope(stored)).metadata.uid


def with_statuses(stored: bytes, entries: Iterable[Mapping[str, Any]]) -> bytes:
    """The claim with these entries of ``status.devices``, which are in the form of JSON.

    Entries of other devices, and conditions of other types, stay. Raises NotStoredBytes.
    """
    # Fields that these messages do not have are kept by protobuf as unknown fields and written again.
    envelope = _envelope(stored)
    # The envelope also has the API version and the kind, which stay.
    claim = _claim(envelope)
    for entry in entries:
        _put(claim.status.devices, entry)
    envelope.raw = claim.SerializeToString()
    return _MAGIC + envelope.SerializeToString()


def _envelope(stored: bytes) -> pb.Unknown:
    if not stored.startswith(_MAGIC):
        raise NotStoredBytes("the body does not have the protobuf envelope of Kubernetes")
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
    new = {condition["type"]: condition for condition in entry["conditions"]}
    kept = [condition for condition in device.conditions if condition.type not in new]
    del device.conditions[:]
    device.conditions.extend([*kept, *map(_condition, new.values())])


def _condition(condition: Mapping[str, Any]) -> pb.Condition:
    since = datetime.fromisoformat(condition["lastTransitionTime"])
    return pb.Condition(
        type=condition["type"],
        status=condition["status"],
        reason=condition["reason"],
        message=condition["message"],
        # metav1.Time has whole seconds.
        last_transition_time=pb.Time(seconds=int(since.timestamp())),
    )
