"""Reads the checkpoint of NVIDIA's driver, which lists the claims that it has prepared.

The file has the same claims in up to two layouts, so that an older version of that driver can read them: v1
has only claims that are prepared; v2 has a state for each, and the boot in which it was last checked. Each
layout has a checksum of its own (FNV-32a over what Go's spew prints for the layout's bytes). Only root can
write the file, and still nothing in it is trusted: it may be damaged, or from an unknown version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ConfigError, StorageError
from driver.process.durable import regular_only
from kubeletplugin.migration.prepared import PreparedClaim, read_claim

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
