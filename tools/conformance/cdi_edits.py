"""Compares our CDI edits with those of NVIDIA's generator, ``nvidia-ctk cdi generate``.

Every difference that is meant is listed here with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.errors import NodeIncomplete
from driver.hardware.gpu import Gpu
from kubeletplugin.claims.cdi.hook import CACHE, CUDA_COMPAT, LINKS, NO_NODES, PROFILE, Hook
from kubeletplugin.claims.cdi.spec import CdiDevice, Edits, HostPaths, build_spec, file_edits
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import DeviceFolder, GpuNodes, HostNow, drm_links

GENERATOR = "nvidia-ctk"
ALL_CALLS = frozenset({LINKS, CACHE, CUDA_COMPAT, NO_NODES, PROFILE})

Entries = dict[tuple[str, str], dict[str, Any]]
"""(kind of edit, its name) -> what it says; a link by its path, a call of the hook by its command."""


@dataclass(frozen=True, slots=True)
class EditDifference:
    """A difference: the kind of edit, its name, and what of it."""

    kind: str
    name: str
    what: str


@dataclass(frozen=True, slots=True)
class AcceptedDifference:
    """A difference that is meant: patterns of name and what, as the page shows it (``shown``), and why."""

    kind: str
    name: str
    what: str
    shown: str
    reason: str

    def covers(self, found: EditDifference) -> bool:
        """Whether this is the difference."""
        return (
            self.kind == found.kind
            and re.fullmatch(self.name, found.name) is not None
            and re.fullmatch(self.what, found.what) is not None
        )


ACCEPTED = (
    AcceptedDifference(
        "call",
        "apply-cuda-memory-limits",
        "theirs alone",
        "hook call `apply-cuda-memory-limits`: not made",
        "It applies limits from the pod's own environment, the same to every GPU. `gpu-memory-hook` applies "
        "those of the claim.",
    ),
    AcceptedDifference(
        "node",
        ".*",
        "permissions rwm becomes rw",
        "device nodes: `rw`, not `rwm`",
        "The runtime creates the node; the container does not need to create another one.",
    ),
    AcceptedDifference(
        "node",
        ".*",
        "type None becomes c",
        "device nodes: with `type: c`",
        "With type, major and minor the device stays allowed when systemd rewrites the rules of the control "
        "group.",
    ),
    AcceptedDifference(
        "node",
        ".*",
        r"(fileMode|gid) \d+ becomes None",
        "device nodes: without `fileMode` and `gid`",
        "The runtime creates the node with mode 0666, so any user of the container can open it.",
    ),
    AcceptedDifference(
        "group",
        r"\d+",
        "theirs alone",
        "group of the DRM nodes: not added to the container",
        "Mode 0666 makes it unnecessary, and it could open other files that the pod mounts.",
    ),
    AcceptedDifference(
        "link",
        r".*/libnvidia-egl-(gbm|wayland|xcb|xlib)\.so\.1",
        "ours alone",
        "links of the EGL platform libraries by their soname",
        "NVIDIA leaves them to `ldconfig`. These exist without a linker cache, too.",
    ),
    AcceptedDifference(
        "link",
        r".*/dev/dri/by-path/.*-(card|render)",
        "(ours|theirs) alone",
        "links in `/dev/dri/by-path`: at that path also with a driver root",
        "NVIDIA's are below the path of the driver root, where no program in the container looks.",
    ),
)


def differences(theirs: Entries, ours: Entries) -> Iterator[EditDifference]:
    """What is not the same: an entry that one of both alone has, or a member of it."""
    for kind, name in sorted(theirs.keys() | ours.keys()):
        their, our = theirs.get((kind, name)), ours.get((kind, name))
        if their is None or our is None:
            yield EditDifference(kind, name, "ours alone" if their is None else "theirs alone")
            continue
        for member in sorted(their.keys() | our.keys()):
            if their.get(member) != our.get(member):
                yield EditDifference(kind, name, f"{member} {their.get(member)} becomes {our.get(member)}")


def taken_apart(edits: Mapping[str, Any]) -> Entries:
    """The entries of containerEdits; of two of one name the later counts."""
    return dict(_entries(edits))


def _entries(edits: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for variable in edits.get("env", ()):
        name, _, value = variable.partition("=")
        yield ("variable", name), {"value": value}
    for group in edits.get("additionalGids", ()):
        yield ("group", str(group)), {}
    for node in edits.get("deviceNodes", ()):
        # nvidia-ctk leaves out a minor number that is 0.
        yield ("node", node["path"]), {"minor": 0, **node} if "major" in node else node
    for mount in edits.get("mounts", ()):
        yield ("mount", mount["containerPath"]), {**mount, "options": sorted(mount.get("options", ()))}
    for call in edits.get("hooks", ()):
        name, arguments = _call(call)
        if name != LINKS:
            yield ("call", name), {**call, "args": arguments}
            continue
        for link in arguments[1::2]:
            target, _, path = link.rpartition("::")
            yield ("link", path), {"target": target, **{key: call[key] for key in call if key != "args"}}


def _call(call: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The command of a call, and its arguments; releases before 1.17 call ``nvidia-ctk hook COMMAND``."""
    name, *arguments = call["args"][1:]
    return (arguments[0], arguments[1:]) if name == "hook" else (name, arguments)


def calls_in_order(edits: Mapping[str, Any]) -> list[str]:
    """The commands that the hook is called with, each once."""
    return list(dict.fromkeys(_call(call)[0] for call in edits.get("hooks", ())))


def generator_arguments(root: Path, dev_root: Path, hook: str) -> tuple[str, ...]:
    """The arguments by which nvidia-ctk prints its spec, with GPUs and MIG devices by UUID.

    The feature flag, for which older releases have no option, comes last.
    """
    return (
        *("--quiet", "cdi", "generate", "--mode", "nvml", "--format", "json"),
        *("--device-name-strategy", "uuid", "--driver-root", str(root), "--dev-root", str(dev_root)),
        *("--nvidia-cdi-hook-path", hook, "--feature-flag", "disable-nvsandboxutils"),
    )


def own_spec(installed: InstalledDriver, sysfs_root: Path, gpus: Iterable[Gpu], hook: Hook) -> Any:
    """The spec of a claim for whole GPUs, each by its UUID; raises NodeIncomplete. It makes no nodes."""
    now, nodes = HostNow(installed), GpuNodes(sysfs_root)
    root = now.driver().path
    # Both specs have paths as this process sees them, since nvidia-ctk knows no others.
    host = HostPaths(root, root)
    devices = []
    for gpu in gpus:
        own = nodes.whole(gpu.pci, gpu.minor, now)
        devices.append(CdiDevice(gpu.uuid, Edits(own, links=drm_links(gpu.pci, own))))
    # GpuNodes.control would make the missing ones.
    control = DeviceFolder.below(*now.roots()).control()
    return json.loads(build_spec(devices, control, file_edits(now.driver().files(), host, hook), host))


def unaccepted(theirs: Any, ours: Any) -> list[str]:
    """The differences of two specs that are not meant, a line for each; raises NodeIncomplete.

    Only devices of our spec are compared: theirs has all of the node.
    """
    try:
        named = {device["name"]: device["containerEdits"] for device in theirs["devices"]}
        pairs = [("all containers", theirs["containerEdits"], ours["containerEdits"])]
        lines = []
        for device in ours["devices"]:
            if device["name"] in named:
                pairs.append((device["name"], named[device["name"]], device["containerEdits"]))
            else:
                lines.append(f"{device['name']}: only ours has the device")
        for place, their, our in pairs:
            lines += _lines(place, their, our)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise NodeIncomplete(
            f"{GENERATOR} printed a spec of an unknown form ({error!r})", "install a current release"
        ) from error
    return lines


def _lines(place: str, theirs: Any, ours: Any) -> Iterator[str]:
    for one in differences(taken_apart(theirs), taken_apart(ours)):
        if not any(accepted.covers(one) for accepted in ACCEPTED):
            yield f"{place}: {one.kind} {one.name}: {one.what}"
    their_calls, our_calls = calls_in_order(theirs), calls_in_order(ours)
    shared = [call for call in their_calls if call in our_calls]
    if shared != [call for call in our_calls if call in their_calls]:
        yield f"{place}: calls: {', '.join(their_calls)} becomes {', '.join(our_calls)}"
