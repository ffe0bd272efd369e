"""Replaces what identifies a node and its users by stand-ins, the same everywhere in one recording.

A stand-in is a hash with a key that is thrown away, so nobody can find out what it stands for, also not by
trying all serial numbers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import re
import secrets
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuctl.gather.masking import MASK, masked_text

_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f-])", re.IGNORECASE | re.ASCII
)
_NO_UUID = uuid.UUID(int=0)
_FIRST_PROCESS = 1_000_001
_SHORTEST_NAME = 4

_PROCESS_FIELDS = frozenset({"pid", "process_id", "process_ids"})
"""Fields of NVML's answers, and calls, whose numbers are ids of processes."""

# A command line of a user, which may be no XML.
_PROCESS_NAME = re.compile(r"(<process_name>).*?(</process_name>)", re.DOTALL)
_ELEMENT = re.compile(r"<(?P<tag>[A-Za-z_][\w.-]*)>(?P<text>[^<]*)</(?P=tag)>")
_IDENTIFYING = re.compile(r"serial|guid|pdi\b|host_id|vm_id|vm_name|guest_driver|ecid", re.IGNORECASE)
"""Elements of nvidia-smi -q -x that name one board, one chassis or one virtual machine."""
_NOTHING = frozenset({"", "0", "N/A", "None", "Not Supported", "Unknown Error"})


class StandIns:
    """The stand-ins of one recording. ``host_names`` are the names of this node, ``key`` is for tests."""

    def __init__(self, host_names: tuple[str, ...] = (), key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._processes: dict[int, int] = {}
        # A very short name would also be found in words that are not the node's name.
        names = sorted({one for one in host_names if len(one) >= _SHORTEST_NAME}, key=len, reverse=True)
        found = "|".join(rf"(?<![\w.-]){re.escape(one)}(?![\w-])" for one in names)
        self._hosts = re.compile(found) if names else None

    def text(self, text: str) -> str:
        """A text with stand-ins for UUIDs and the node's name, and without what looks like a secret."""
        masked = _UUID.sub(lambda found: self._uuid(found[0]), masked_text(text))
        return masked if self._hosts is None else self._hosts.sub(lambda found: self.word(found[0]), masked)

    def word(self, text: str) -> str:
        """The stand-in of a name or a serial number."""
        return f"masked-{self._hash(text).hex()[:8]}"

    def process(self, number: int) -> int:
        """The stand-in of the id of a process."""
        return self._processes.setdefault(number, _FIRST_PROCESS + len(self._processes))

    def log(self, text: str) -> str:
        """What ``nvidia-smi -q -x`` printed, with stand-ins, and without the command lines of processes."""
        return self.text(_ELEMENT.sub(self._element, _PROCESS_NAME.sub(rf"\1{MASK}\2", text)))

    def answer(self, value: Any, name: str = "") -> Any:
        """An answer of NVML as JSON with stand-ins; ``name`` is the call, or the field that contains it."""
        if isinstance(value, str):
            return self.text(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {str(key): self.answer(one, str(key)) for key, one in value.items()}
        if isinstance(value, tuple | list):
            return [self.answer(one, name) for one in value]
        if isinstance(value, datetime):
            return value.isoformat()
        if name in _PROCESS_FIELDS and isinstance(value, int):
            return self.process(value)
        return value

    def _element(self, found: re.Match[str]) -> str:
        tag, text = found["tag"], found["text"].strip()
        if tag == "pid" and text.isdecimal():
            return f"<{tag}>{self.process(int(text))}</{tag}>"
        if _IDENTIFYING.search(tag) and text not in _NOTHING:
            return f"<{tag}>{self.word(text)}</{tag}>"
        return found[0]

    def _uuid(self, text: str) -> str:
        # NVML and the kernel write one UUID in different cases.
        known = uuid.UUID(text)
        return text if known == _NO_UUID else str(uuid.UUID(bytes=self._hash(known.hex)[:16], version=4))

    def _hash(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()
