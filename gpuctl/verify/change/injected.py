"""What a container gets with a prepared claim, by its CDI spec: resolved and checked, but not put into one.

No container is started here. That a runtime applies the spec is what a cluster shows, and not this check.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeletplugin.claims.cdi.spec import MEMORY_HOOK

_GPU_NODE = re.compile(r"/dev/nvidia\d+|/dev/vfio/(\d+|devices/vfio\d+)", re.ASCII)
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Injected:
    """The edits of a claim's devices: variables, device nodes with their specs, mounts, calls of hooks.

    ``mounts`` are the paths of the host, as this process sees them, by those in the container.
    """

    variables: Mapping[str, str]
    nodes: Mapping[str, Mapping[str, Any]]
    mounts: Mapping[str, str]
    hooks: Sequence[Mapping[str, Any]]
    wrong: tuple[str, ...]
    """What a runtime could not do, or what would give a container something else than was asked for."""

    @property
    def gpu_nodes(self) -> tuple[str, ...]:
        """The nodes of single GPUs, also those by which a virtual machine gets one."""
        return tuple(sorted(path for path in self.nodes if _GPU_NODE.fullmatch(path)))

    @property
    def memory_calls(self) -> tuple[Mapping[str, str], ...]:
        """The options of each call of gpu-memory-hook that asks the plugin for a limit."""
        calls = (one["args"][1:] for one in self.hooks if one["args"][0] == MEMORY_HOOK)
        pairs = ([one.removeprefix("--").partition("=") for one in words] for words in calls)
        options = ({name: value for name, _, value in words} for words in pairs)
        return tuple(one for one in options if "device" in one)

    def of_host(self) -> dict[str, str]:
        """The variables for a program outside of a container, which finds the pipes of MPS on the host."""
        own = {name: value for name, value in self.variables.items() if name.startswith(("CUDA_", "NVIDIA_"))}
        return own | ({_PIPES: self.mounts[own[_PIPES]]} if own.get(_PIPES) in self.mounts else {})


def injected(spec_file: Path, device_ids: Sequence[str], host_root: Path, *, numbers: bool) -> Injected:
    """What a runtime would do for these devices of a spec, ``vendor/class=name``.

    ``numbers``: the device nodes have to have the numbers that the spec gives them.
    """
    spec = json.loads(spec_file.read_bytes())
    known = {f"{spec['kind']}={one['name']}": one for one in spec["devices"]}
    wrong = [f"its CDI spec lacks {one}" for one in device_ids if one not in known]
    chosen = [known[one] for one in device_ids if one in known]
    edits = [one["containerEdits"] for one in (spec, *chosen) if one.get("containerEdits")]

    def each(name: str) -> Iterator[Any]:
        return (one for some in edits for one in some.get(name) or ())

    nodes = {one["path"]: one for one in each("deviceNodes")}
    mounts = {one["containerPath"]: _on_host(one["hostPath"], host_root) for one in each("mounts")}
    hooks = tuple(each("hooks"))
    wrong += [f"the file for {path} is not on the host" for path, file in mounts.items() if file is None]
    wrong += [
        f"the hook {path} cannot be run"
        for path in dict.fromkeys(one["path"] for one in hooks)
        if not os.access(_on_host(path, host_root) or path, os.X_OK)
    ]
    for path, one in nodes.items():
        wrong += _wrong_node(path, one, _on_host(one.get("hostPath") or path, host_root), numbers=numbers)
    return Injected(
        dict(one.split("=", 1) for one in each("env")),
        nodes,
        {path: str(file) for path, file in mounts.items()},
        hooks,
        tuple(wrong),
    )


def _wrong_node(path: str, spec: Mapping[str, Any], file: Path | None, *, numbers: bool) -> Iterator[str]:
    if file is None:
        yield f"the device node {path} is not on the host"
        return
    device = file.stat()
    found = os.major(device.st_rdev), os.minor(device.st_rdev)
    wanted = spec.get("major"), spec.get("minor")
    if numbers and stat.S_ISCHR(device.st_mode) and None not in wanted and found != wanted:
        yield f"the device node {path} has the numbers {found}, and {wanted} in the CDI spec"


def _on_host(path: str, host_root: Path) -> Path | None:
    # A folder that only this process has, as a temporary one, is not below the host's root.
    return next((one for one in (host_root / path.lstrip("/"), Path(path)) if one.exists()), None)
