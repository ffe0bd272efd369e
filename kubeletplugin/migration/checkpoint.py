"""Reads the checkpoint of NVIDIA's driver, which lists the claims that it has prepared.

The file has the same claims in up to two layouts, so that an older version of that driver can read them: v1
has only claims that are prepared; v2 has a state for each, and the boot in which it was last checked. Each
layout has a checksum of its own (FNV-32a over what Go's spew prints for the layout's bytes). Only root can
write the file, and still nothing in it is trusted: it may be damaged, or from an unknown version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError, StorageError
from driver.process.durable import regular_only
from kubeletplugin.kubelet.wire.names import is_safe_uid

_LONGEST_BYTES = 1 << 22
"""A claim takes some 2 KiB in both layouts together, and one that 256 pods share 50 KiB."""

_KNOWN = frozenset({"version", "checksum", "v1", "v2"})
_VERSIONS = ("v1", "v2")
# The constants of FNV-1a with 32 bits.
_OFFSET, _PRIME, _LOW = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_decoder = json.JSONDecoder()


class NotUnderstood(ConfigError):
    """The checkpoint is damaged, or has a layout that this version does not know."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of the file; ``boot_id`` is empty if that version did not record the boot."""

    claims: tuple[PreparedClaim, ...]
    boot_id: str = ""


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The content of the file at ``path``, None if there is no file.

    Raises NotUnderstood, and StorageError if the file cannot be read.
    """
    try:
        with open(path, "rb", opener=regular_only) as file:
            # One byte more than allowed, so that a file that is too long is noticed.
            data = file.read(_LONGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"reading {path} failed: {error.strerror}", "check the disk") from error
    try:
        return decode(data)
    except NotUnderstood as error:
        raise NotUnderstood(f"{path} {error.what}", error.way_out) from error


def decode(data: bytes) -> Checkpoint:
    """Decode the bytes of a checkpoint; raises NotUnderstood."""
    if len(data) > _LONGEST_BYTES:
        raise _not_understood(f"has more than {_LONGEST_BYTES} bytes")
    try:
        parts = _members(data.decode())
        unknown = parts.keys() - _KNOWN
        version = json.loads(parts.get("version", '"v2"'))
        if unknown or version not in _VERSIONS:
            raise _not_understood(f"has an unknown layout ({', '.join(sorted(unknown)) or version})")
        _check(parts)
        # v2 says more. A file without it is from a version that wrote v1 alone.
        layout = json.loads(parts.get("v2") or parts.get("v1") or "{}")
        claims = layout.get("preparedClaims") or {}
        prepared = tuple(read_claim(str(uid), claims[uid], has_state="v2" in parts) for uid in sorted(claims))
        return Checkpoint(prepared, str(layout.get("nodeBootID") or ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _not_understood(f"is not a checkpoint: {str(error)[:200]}") from error


def checksum(text: str) -> int:
    """The checksum of a layout's JSON (kubelet, pkg/kubelet/checkpointmanager/checksum)."""
    # Go hashes what spew prints for a slice of bytes: its type, and the bytes as decimal numbers.
    found = _OFFSET
    for byte in f"([]uint8)[{' '.join(map(str, text.encode()))}]".encode():
        found = ((found ^ byte) * _PRIME) & _LOW
    return found


def _check(parts: Mapping[str, str]) -> None:
    """Compare the checksums of the layouts in the file; raises NotUnderstood."""
    # A checksum is computed with its own field set to 0, and that of v1 before v2 is added to the file.
    first = '{"checksum":0' + (f',"v1":{parts["v1"]}' if "v1" in parts else "") + "}"
    _compare(first, parts["checksum"], "v1")
    if "v2" in parts:
        members = _members(parts["v2"])
        expected = members.pop("checksum")
        rest = "".join(f",{json.dumps(name)}:{value}" for name, value in members.items())
        _compare(f'{{"checksum":0{rest}}}', expected, "v2")


def _compare(text: str, expected: str, layout: str) -> None:
    if checksum(text) != json.loads(expected):
        raise _not_understood(f"is damaged: the checksum of its layout {layout} does not match its content")


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as its original text; raises ValueError."""
    # The checksum is over the original bytes, which decoding and encoding again might change.
    found: dict[str, str] = {}
    at = _expect(text, 0, "{")
    while text[at : at + 1] != "}":
        if found:
            at = _expect(text, at, ",")
        name, at = _decoder.raw_decode(text, at)
        if not isinstance(name, str) or name in found:
            raise ValueError(f"member {str(name)[:64]!r} appears twice, or is not a name")
        start = _expect(text, at, ":")
        _, at = _decoder.raw_decode(text, start)
        found[name] = text[start:at]
    if text[at + 1 :].strip():
        raise ValueError("there is more after the object")
    return found


def _expect(text: str, at: int, letter: str) -> int:
    if text[at : at + 1] != letter:
        raise ValueError(f"there is no {letter} at {at}")
    return at + 1


def _not_understood(what: str) -> NotUnderstood:
    return NotUnderstood(
        what,
        "let NVIDIA's driver run on this node until the pods that use its GPUs have ended, or restart the "
        "node",
    )


_CLAIM = frozenset({"checkpointState", "status", "preparedDevices", "name", "namespace"})
_GROUP = frozenset({"devices", "configState"})
_DEVICE = frozenset({"Requests", "PoolName", "DeviceName", "CDIDeviceIDs", "ShareID"})
_STATES = ("PrepareCompleted", "PrepareStarted")
_DEFAULT_INTERVALS = (None, "Default")
_MOST_NAME_CHARACTERS = 253


@dataclass(frozen=True, slots=True)
class Result:
    """One device of this driver in the claim's allocation."""

    request: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One prepared device."""

    result: Result
    kind: Literal["gpu", "mig"]
    # The UUID of the GPU, or of the MIG device.
    uuid: str
    cdi_ids: tuple[str, ...]
    # For partitions only, and only in versions that made partitions themselves.
    parent_uuid: str = ""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    # Whether the checkpoint is from a version that had only partitions of an admin.
    only_static: bool = False


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """One claim."""

    uid: str
    # Empty if the checkpoint does not have them.
    namespace: str = ""
    name: str = ""
    # The names of the pods that it was reserved for.
    pods: tuple[str, ...] = ()
    devices: tuple[PreparedDevice, ...] = ()
    # Why it cannot be taken over, empty if it can.
    problem: str = ""


class _Unknown(Exception):
    """A part of the claim is not understood; the message says which."""


def read_claim(uid: str, stored: Any, *, has_state: bool) -> PreparedClaim:
    """The claim with this UID, or why it is not understood.

    The format is known from that driver's source: whole GPUs have their UUID, partitions the ids of their
    instances. A claim with any unknown field is not understood: something may have been made for it that only
    that driver can undo. ``has_state`` is whether its layout has a state for each claim.
    """
    # The UID becomes part of file names.
    if not is_safe_uid(uid):
        return PreparedClaim(_shown(uid), problem="its UID is not valid")
    if not isinstance(stored, dict):
        return PreparedClaim(uid, problem="its entry is not an object")
    namespace, name = (_text(stored.get(key)) for key in ("namespace", "name"))
    pods = tuple(_pods(stored.get("status")))
    try:
        return PreparedClaim(uid, namespace, name, pods, _devices(stored, has_state=has_state))
    except _Unknown as unknown:
        return PreparedClaim(uid, namespace, name, pods, problem=str(unknown))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        return PreparedClaim(uid, namespace, name, pods, problem=f"its entry is malformed: {_shown(error)}")


def _devices(stored: Mapping[str, Any], *, has_state: bool) -> tuple[PreparedDevice, ...]:
    _only(stored, _CLAIM, "the claim")
    # Layout v1 has only claims that were prepared to the end.
    state = stored["checkpointState"] if has_state else _STATES[0]
    if state == "PrepareStarted":
        raise _Unknown("its preparation was started and not finished")
    if state not in _STATES:
        raise _Unknown(f"its state is {_shown(state)}")
    allocated = (stored.get("status") or {}).get("allocation")
    if allocated is None:
        raise _Unknown("its allocation is missing")
    _refuse_sharing(allocated["devices"].get("config") or ())
    listed = allocated["devices"].get("results") or ()
    # The allocation may have devices of other drivers too.
    results = [_result(one) for one in listed if one["driver"] == DRIVER_NAME]
    # The prepared devices do not say which share is which.
    if len(set(map(_key, results))) < len(results):
        raise _Unknown("it has two shares of one device")
    found = [
        _device(one, results) for group in stored.get("preparedDevices") or () for one in _members_of(group)
    ]
    if not found or sorted(map(_key, (one.result for one in found))) != sorted(map(_key, results)):
        raise _Unknown("its allocation does not match the devices that were prepared")
    return tuple(found)


def _refuse_sharing(configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise for a configuration that changed something on the GPU, which would have to be undone."""
    for config in configs:
        opaque = config.get("opaque")
        # Configuration for another driver of the same claim.
        if opaque is None or opaque["driver"] != DRIVER_NAME:
            continue
        parameters = opaque["parameters"]
        kind, sharing = parameters.get("kind"), parameters.get("sharing") or {}
        if kind not in ("GpuConfig", "MigDeviceConfig"):
            raise _Unknown(f"it has a configuration of kind {_shown(kind)}")
        strategy = sharing.get("strategy")
        interval = (sharing.get("timeSlicingConfig") or {}).get("interval")
        # Time-slicing with the default interval changes nothing.
        if strategy not in (None, "TimeSlicing"):
            raise _Unknown(f"its pods share the GPU through {_shown(strategy)}")
        if kind == "GpuConfig" and interval not in _DEFAULT_INTERVALS:
            raise _Unknown(f"it sets a time-slice ({_shown(interval)})")


def _members_of(group: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    _only(group, _GROUP, "a group of its devices")
    state = group.get("configState") or {}
    if state.get("mpsControlDaemonID"):
        raise _Unknown("its pods share the GPU through an MPS daemon of that driver")
    # Unknown fields that are set mean that something was changed on the GPU.
    if any(state.values()):
        raise _Unknown(f"a group of its devices has {', '.join(map(_shown, state))}")
    yield from group["devices"]


def _device(stored: Mapping[str, Any], results: Sequence[Result]) -> PreparedDevice:
    kinds = [kind for kind, value in stored.items() if value is not None]
    if kinds not in (["gpu"], ["mig"]):
        raise _Unknown(f"it has a device of kind {', '.join(map(_shown, kinds)) or 'unknown'}")
    kind: Literal["gpu", "mig"] = "gpu" if kinds == ["gpu"] else "mig"
    prepared = stored[kind]
    _only(prepared, frozenset({"info", "concrete", "device"}), "a device")
    device = prepared["device"]
    _only(device, _DEVICE, "a device")
    requests = device["Requests"]
    if len(requests) != 1:
        raise _Unknown("a device belongs to several requests")
    result = _one_of(results, str(requests[0]), str(device["PoolName"]), str(device["DeviceName"]))
    cdi_ids = tuple(map(str, device["CDIDeviceIDs"]))
    if kind == "gpu":
        return PreparedDevice(result, kind, str(prepared["info"]["uuid"]), cdi_ids)
    if prepared.get("concrete") is None:
        info = prepared["info"]
        # Versions that made partitions themselves wrote more about them than the UUID.
        return PreparedDevice(result, kind, str(info["uuid"]), cdi_ids, only_static=info.keys() == {"uuid"})
    live = prepared["concrete"]
    ids = int(live["giId"]), int(live["ciId"])
    return PreparedDevice(result, kind, str(live["migUUID"]), cdi_ids, str(live["parentUUID"]), *ids)


def _one_of(results: Sequence[Result], request: str, pool: str, device: str) -> Result:
    for one in results:
        # The driver reports top-level requests; the allocation may name a sub-request.
        if (one.pool, one.device) == (pool, device) and _top(one.request) == _top(request):
            return one
    raise _Unknown(f"the prepared device {_shown(device)} is not in its allocation")


def _result(stored: Mapping[str, Any]) -> Result:
    share_id = stored.get("shareID")
    return Result(
        str(stored["request"]),
        str(stored["pool"]),
        str(stored["device"]),
        None if share_id is None else str(share_id),
        stored.get("adminAccess") is True,
    )


def _key(result: Result) -> tuple[str, str, str]:
    return result.request, result.pool, result.device


def _top(request: str) -> str:
    return request.partition("/")[0]


def _only(stored: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    unknown = sorted(key for key in stored if key not in known and stored[key] is not None)
    if unknown:
        raise _Unknown(f"{what} has {', '.join(map(_shown, unknown))}, which this version does not know")


def _pods(status: Any) -> Iterator[str]:
    reserved = status.get("reservedFor") if isinstance(status, dict) else None
    for user in reserved if isinstance(reserved, list) else ():
        if isinstance(user, dict) and user.get("resource") == "pods" and _text(user.get("name")):
            yield _text(user.get("name"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _MOST_NAME_CHARACTERS else ""


def _shown(value: object) -> str:
    return repr(value if isinstance(value, str) else str(value))[:100]
