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
        "the call `apply-cuda-memory-limits` of each GPU: not made",
        "It sets what the pod itself writes into its variables, the same for every GPU and every container, "
        "and nothing where there are none. `gpu-memory-hook` takes its place: what counts is the claim.",
    ),
    Difference(
        "node",
        ".*",
        "permissions rwm becomes rw",
        "device nodes: `rw`, not `rwm`",
        "The runtime makes the node. A container does not need to make another of it.",
    ),
    Difference(
        "node",
        ".*",
        "type None becomes c",
        "device nodes: with `type: c`",
        "With type, major and minor the runtime allows the device by its numbers, and it stays allowed when "
        "systemd writes the rules of the control group again.",
    ),
    Difference(
        "node",
        ".*",
        r"(fileMode|gid) \d+ becomes None",
        "device nodes: without `fileMode` and `gid`",
        "The runtime makes the node with mode 0666, so that the user of the container can open what the "
        "claim was given, whatever group owns it on the host.",
    ),
    Difference(
        "group",
        r"\d+",
        "theirs alone",
        "the group of the DRM nodes: not added to the container",
        "The same: with mode 0666 nobody needs the group, which would also open what else of that group a "
        "pod mounts.",
    ),
    Difference(
        "link",
        r".*/libnvidia-egl-(gbm|wayland|xcb|xlib)\.so\.1",
        "ours alone",
        "links of the EGL platform libraries by their soname",
        "With theirs it is `ldconfig` that makes them. Ours are there also where no linker cache is written.",
    ),
    Difference(
        "link",
        r".*/dev/dri/by-path/.*-(card|render)",
        "(ours|theirs) alone",
        "`/dev/dri/by-path`: at that path also with a driver root",
        "Theirs are made at the path that the host has them at, the driver root before it, where no program "
        "of a container looks. Where the driver root is `/` both are the same.",
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
