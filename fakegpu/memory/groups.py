"""The control groups that a fake machine has: its pretended ones, or those of the machine that it runs on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from driver.nvml.memory_limits import Cgroup
from fakegpu.machine.cgroups import CGROUP_ROOT, folder_of, inode_of

if TYPE_CHECKING:
    from fakegpu.machine.state import GpuState, MachineState


def group_at(state: MachineState, path: str) -> Cgroup | None:
    """The group at a path as NVML takes it, None where there is none; raises ValueError for no such path."""
    root = _root(state)
    folder = folder_of(root, path)
    if folder is None:
        raise ValueError(f"{path} is no folder below {CGROUP_ROOT}")
    inode = inode_of(root, path)
    return None if inode is None else Cgroup(str(Path(CGROUP_ROOT, folder.relative_to(root))), inode)


def living(state: MachineState, gpu: GpuState) -> GpuState:
    """A GPU without the limits and the clients of groups that are gone."""
    if not gpu.memory.limits and not gpu.memory.clients:
        return gpu
    root = _root(state)
    memory = gpu.memory.of_living_groups(lambda group: inode_of(root, group.path) == group.inode)
    return gpu if memory is gpu.memory else replace(gpu, memory=memory)


def _root(state: MachineState) -> Path:
    return Path(state.pretend_cgroups or CGROUP_ROOT)
