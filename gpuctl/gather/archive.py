"""Writes and reads the tar of a bug report, whose size is bounded."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.errors import ConfigError
from gpuctl.cli.output import printable
from gpuctl.gather.masking import masked_text

FOLDER = "gpu-dra-report"
MOST_MEMBER_BYTES = 4 << 20
MOST_BYTES = 64 << 20
"""The most bytes of all members together, before they are compressed."""

LEFT_OUT = "left-out.txt"
_MOST_NAMES_BYTES = 64 << 10
"""The room that is kept for the names of the members that are left out."""

_NAME = re.compile(r"[A-Za-z0-9_.@-]+(?:/[A-Za-z0-9_.@-]+)*", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.@-]", re.ASCII)
_CUT = b"\n... cut: it was longer\n"


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the report; ``name`` is its path below the report's folder."""

    name: str
    data: bytes


def text_member(name: str, text: str) -> Member:
    """A text without what may be secret, and without characters that a terminal would act on."""
    return Member(name, printable(masked_text(text)).encode())


def safe_part(name: str) -> str:
    """A name that comes from outside, as one part of a path."""
    # Without leading dots it can be neither "." nor "..", nor a hidden file.
    return _UNSAFE.sub("_", name).lstrip(".") or "_"


def write_archive(members: Iterable[Member], now: float) -> bytes:
    """The compressed tar; ``now``, in seconds since 1970, is the time of all members.

    The same members give the same bytes. A member that is too long is cut; those that no longer fit are left
    out and named.
    """
    kept, left_out = _fitting(members)
    if left_out:
        text = "".join(f"{name}\n" for name in left_out)
        kept.append(Member(LEFT_OUT, f"no room for:\n{text}".encode()[:_MOST_NAMES_BYTES]))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for one in sorted(kept, key=lambda member: member.name):
            head = tarfile.TarInfo(f"{FOLDER}/{one.name}")
            head.size, head.mtime, head.mode = len(one.data), int(now), 0o600
            tar.addfile(head, io.BytesIO(one.data))
    return gzip.compress(plain.getvalue(), mtime=int(now))


def _fitting(members: Iterable[Member]) -> tuple[list[Member], list[str]]:
    kept, left_out, size = [], [], 0
    for one in members:
        data = one.data
        if len(data) > MOST_MEMBER_BYTES:
            data = data[: MOST_MEMBER_BYTES - len(_CUT)] + _CUT
        if size + len(data) > MOST_BYTES - _MOST_NAMES_BYTES:
            left_out.append(one.name)
            continue
        size += len(data)
        kept.append(Member(one.name, data))
    return kept, left_out


def read_archive(data: bytes) -> tuple[Member, ...]:
    """The members of a report that another gpuctl made; raises ConfigError if it is anything else."""
    # It comes from a node, and a node is trusted only about itself: nothing is unpacked to a disk, and links,
    # device nodes and paths that lead out of the folder are refused.
    found: list[Member] = []
    size = 0
    try:
        # "r|gz" reads it as a stream: a small archive that unpacks to gigabytes is refused by the size in the
        # head of a member, before its content is unpacked.
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as tar:
            for head in tar:
                name = head.name.removeprefix(f"{FOLDER}/")
                size += head.size
                if not head.isreg() or not is_safe_path(name) or size > MOST_BYTES:
                    raise ConfigError(
                        f"the report of a node contains an unexpected member: {head.name[:80]!r}"
                    )
                stream = tar.extractfile(head)
                found.append(Member(name, b"" if stream is None else stream.read()))
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise ConfigError(
            f"the node did not send a valid report ({error})",
            "check that its image has about the same version as this gpuctl",
        ) from error
    return tuple(found)


def write_new(file: Path, data: bytes) -> None:
    """Write a new file that only its owner can read; raises OSError, also if there is one already."""
    # O_EXCL refuses a symbolic link of that name too, so nobody can lead the report into another file.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:  # noqa: PTH123 - it is a descriptor
        stream.write(data)


def is_safe_path(name: str) -> bool:
    """Whether a name leads to a file below the folder of the report."""
    return bool(_NAME.fullmatch(name)) and not {".", ".."} & set(name.split("/"))


def as_json(content: Any) -> bytes:
    """A document as JSON that people can read too; equal documents give equal bytes."""
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"
