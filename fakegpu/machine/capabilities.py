"""The files in which the fake NVIDIA driver shows its MIG instances: capabilities and their device nodes.

As with the real driver, a capability is a file below ``/proc/driver/nvidia/capabilities`` that names the
minor of a node in ``/dev/nvidia-caps``. The file is removed with its instance; the node stays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from fakegpu.machine.state import MachineState

CAPABILITIES = "proc/driver/nvidia/capabilities"
CAPABILITY_NODES = "dev/nvidia-caps"

VISIBLE_NODES = "FAKEGPU_VISIBLE_NODES"
"""The environment variable with the device nodes of a container, separated by colons.

The embedded cluster sets it: its containers are plain processes, which see the node's whole /dev.
"""

_CONFIG_MINOR, _MONITOR_MINOR, _FIRST_ACCESS_MINOR = 1, 2, 3
# The most instances for which the driver reserves minors: 15 of a GPU, 8 of a GPU instance.
_GPU_INSTANCES, _COMPUTE_INSTANCES = 15, 8
_OWNER_READS, _ALL_READ = 0o400, 0o444
# The numbers of /dev/null.
_NULL_DEVICE = os.makedev(1, 3)


def access_minor(gpu_minor: int, gpu_instance_id: int, compute_instance_id: int | None = None) -> int:
    """The minor of the node that gives access to a GPU instance, or to a compute instance in it."""
    # Minors are fixed by GPU and ids, as /proc/driver/nvidia-caps/mig-minors lists them: one for the GPU
    # instance, followed by those of its compute instances.
    per_instance = 1 + _COMPUTE_INSTANCES
    minor = _FIRST_ACCESS_MINOR + per_instance * (_GPU_INSTANCES * gpu_minor + gpu_instance_id)
    return minor if compute_instance_id is None else minor + 1 + compute_instance_id


def partition_nodes(gpu_minor: int, gpu_instance_id: int, compute_instance_id: int) -> tuple[str, ...]:
    """The nodes that a container needs for a MIG device: of its GPU instance and its compute instance."""
    minors = (
        access_minor(gpu_minor, gpu_instance_id),
        access_minor(gpu_minor, gpu_instance_id, compute_instance_id),
    )
    return tuple(f"/{CAPABILITY_NODES}/nvidia-cap{minor}" for minor in minors)


def visible_nodes(environment: Mapping[str, str]) -> frozenset[str] | None:
    """The device nodes of the container in which a program runs; None outside of one."""
    text = environment.get(VISIBLE_NODES)
    return None if text is None else frozenset(filter(None, text.split(":")))


def update_capabilities(before: MachineState, after: MachineState) -> None:
    """Make the capability files below all of the machine's driver roots show the new state."""
    if after.driver_roots:
        old, new = _capabilities(before), _capabilities(after)
        for root in map(Path, after.driver_roots):
            if root.is_dir():
                _update(root, old, new)


def write_capabilities(root: Path, state: MachineState) -> None:
    """Make the capability files below a driver root show the state, whatever is there."""
    folder = root / CAPABILITIES
    there = {path.relative_to(folder).as_posix(): (-1, 0) for path in folder.rglob("*") if path.is_file()}
    _update(root, there, _capabilities(state))


def null_device(path: Path) -> None:
    """Make a character device that is the null device, or a link to it if the process may make none."""
    if path.is_char_device():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, _NULL_DEVICE)
        # The umask took bits away from the mode of mknod.
        path.chmod(0o666)
    except PermissionError:
        path.symlink_to("/dev/null")


def _capabilities(state: MachineState) -> dict[str, tuple[int, int]]:
    """File below the folder of capabilities -> minor and mode of its node."""
    if not state.driver_loaded:
        return {}
    found = {"mig/config": (_CONFIG_MINOR, _OWNER_READS), "mig/monitor": (_MONITOR_MINOR, _ALL_READ)}
    for gpu in state.gpus.values():
        for gi in gpu.mig.instances if gpu.present else ():
            place = f"gpu{gpu.minor}/mig/gi{gi.id}"
            found[f"{place}/access"] = (access_minor(gpu.minor, gi.id), _ALL_READ)
            for ci in gi.compute_instances:
                found[f"{place}/ci{ci.id}/access"] = (access_minor(gpu.minor, gi.id, ci.id), _ALL_READ)
    return found


def _update(root: Path, before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> None:
    """Remove the files that no longer exist, write those that are new or different, and make their nodes."""
    folder = root / CAPABILITIES
    for name in before.keys() - after.keys():
        path = folder / name
        path.unlink(missing_ok=True)
        remove_empty_folders(path.parent, folder)
    for name in after.keys() - {name for name, node in before.items() if after.get(name) == node}:
        minor, mode = after[name]
        null_device(root / CAPABILITY_NODES / f"nvidia-cap{minor}")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # The mode is in decimal, as the driver prints it.
        path.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")


def remove_empty_folders(path: Path, top: Path) -> None:
    """Remove a folder and those above it up to ``top``, as far as they are empty."""
    while path != top and path.is_dir() and not any(path.iterdir()):
        path.rmdir()
        path = path.parent
