"""Names every difference between our CDI edits and those of NVIDIA's generator, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Entries = dict[tuple[str, str], dict[str, Any]]
"""(kind of edit, its name) -> what it says; a link by its path, a call of the hook by its command."""


@dataclass(frozen=True, slots=True)
class Found:
    """A difference: the kind of edit, its name, and what of it."""

    kind: str
    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that is meant: patterns of name and what, as the page shows it (``shown``), and why."""

    kind: str
    name: str
    what: str
    shown: str
    reason: str

    def covers(self, found: Found) -> bool:
        """Whether this is the difference."""
        return (
            self.kind == found.kind
            and re.fullmatch(self.name, found.name) is not None
            and re.fullmatch(self.what, found.what) is not None
        )


DIFFERENCES = (
    Difference(
        "call",
        "apply-cuda-memory-limits",
        "theirs alone",
        "hook call `apply-cuda-memory-limits`: not made",
        "It applies limits from the pod's own environment, the same to every GPU. `gpu-memory-hook` applies "
        "those of the claim.",
    ),
    Difference(
        "node",
        ".*",
        "permissions rwm becomes rw",
        "device nodes: `rw`, not `rwm`",
        "The runtime creates the node; the container does not need to create another one.",
    ),
    Difference(
        "node",
        ".*",
        "type None becomes c",
        "device nodes: with `type: c`",
        "With type, major and minor the device stays allowed when systemd rewrites the rules of the control "
        "group.",
    ),
    Difference(
        "node",
        ".*",
        r"(fileMode|gid) \d+ becomes None",
        "device nodes: without `fileMode` and `gid`",
        "The runtime creates the node with mode 0666, so any user of the container can open it.",
    ),
    Difference(
        "group",
        r"\d+",
        "theirs alone",
        "group of the DRM nodes: not added to the container",
        "Mode 0666 makes it unnecessary, and it could open other files that the pod mounts.",
    ),
    Difference(
        "link",
        r".*/libnvidia-egl-(gbm|wayland|xcb|xlib)\.so\.1",
        "ours alone",
        "links of the EGL platform libraries by their soname",
        "NVIDIA leaves them to `ldconfig`. These exist without a linker cache, too.",
    ),
    Difference(
        "link",
        r".*/dev/dri/by-path/.*-(card|render)",
        "(ours|theirs) alone",
        "links in `/dev/dri/by-path`: at that path also with a driver root",
        "NVIDIA's are below the path of the driver root, where no program in the container looks.",
    ),
)


def differences(theirs: Entries, ours: Entries) -> Iterator[Found]:
    """What is not the same: an entry that one of both alone has, or a member of it."""
    for kind, name in sorted(theirs.keys() | ours.keys()):
        their, our = theirs.get((kind, name)), ours.get((kind, name))
        if their is None or our is None:
            yield Found(kind, name, "ours alone" if their is None else "theirs alone")
            continue
        for member in sorted(their.keys() | our.keys()):
            if their.get(member) != our.get(member):
                yield Found(kind, name, f"{member} {their.get(member)} becomes {our.get(member)}")
