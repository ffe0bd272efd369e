"""Says why nothing may be changed on a node, or on one of its GPUs: somebody else uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driver.errors import DriverError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.inventory import Discovery
from driver.hardware.pci import drm_folder, read_text
from driver.nvml.api import NotSupported
from driver.nvml.deadline import Guard
from driver.nvml.pci_address import PciAddress
from gpuctl.doctor.check import counted
from gpuctl.verify.change import other_drivers
from gpuctl.verify.change.other_drivers import Held
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.gpu_nodes import DeviceFolder
from kubeletplugin.devices.vfio.users import FunctionUsers, User, named, user_of, users_of

_DAEMONS = frozenset({"nvidia-persiste", "nv-fabricmanage"})
"""Daemons of the NVIDIA driver that keep GPUs open and do not compute, by the names that the kernel cuts.

Any program can use such a name, so it has to belong to the node as well.
"""

_HARMLESS = frozenset({"error", "unlicensed", "fabric-degraded"})
"""Problems with which a GPU can be verified: what follows from them is a finding."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing may be changed, one sentence for each reason, with the way out.

    ``of_node`` concerns the whole node: if it is not empty, nothing may be changed at all. ``of_gpus`` has
    the GPUs that have to be left alone, also those that NVML does not list; the others may be changed.
    ``of_resets`` has GPUs that a daemon of the NVIDIA driver keeps open. They may be changed, but they can
    neither be reset nor given to another kernel driver, nor can their MIG mode be changed by a reset.
    """

    of_node: tuple[str, ...] = ()
    of_gpus: Mapping[PciAddress, str] = field(default_factory=dict)
    of_resets: Mapping[PciAddress, str] = field(default_factory=dict)


def refusals(subject: Subject, proc: Path | None = None) -> Refused:
    """Look at the node now, and say what speaks against changing it.

    ``proc`` is where the processes of the host are seen; by default below the host's root. The processes of a
    fake machine are those that its NVML reports. An unfinished verification is not looked for here; see
    ``gpuctl.verify.change.undo``.
    """
    places = subject.places
    if proc is None and not subject.is_fake:
        proc = _proc(places.host_root)
    of_node = [*other_drivers.registered(places), *(other_drivers.running(proc) if proc else ())]
    try:
        seen = _look(subject)
    except DriverError as error:
        return Refused((*of_node, f"the GPUs cannot be read now: {error.what}: {error.way_out}"))
    open_by = _users(seen.nodes, proc) if proc else {}
    reasons: dict[PciAddress, list[str]] = {}
    for pci, reason in (*_unfit(seen.inventory, places.sysfs_root), *_in_use(seen, open_by, proc)):
        reasons.setdefault(pci, []).append(reason)
    for held in other_drivers.claimed(places):
        gpus = _gpus_of(held, seen)
        if not gpus:
            of_node.append(f"{held.what}: {held.way_out}")
        for pci in gpus:
            reasons.setdefault(pci, []).append(f"{held.what}: {held.way_out}")
    return Refused(
        tuple(dict.fromkeys(of_node)),
        {pci: "; ".join(dict.fromkeys(texts)) for pci, texts in sorted(reasons.items())},
        dict(_kept_open(open_by)),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The GPUs now.

    ``process_ids`` are NVML's, or why it cannot say; a GPU is missing if its NVML never can. ``nodes`` are
    where the device nodes of each GPU are or would be, by whichever kernel driver, below ``dev``.
    """

    inventory: Inventory
    process_ids: Mapping[PciAddress, tuple[int, ...] | str]
    dev: Path
    nodes: Mapping[PciAddress, tuple[Path, ...]]


def _look(subject: Subject) -> _Seen:
    places = subject.places
    guard = Guard()
    try:
        discovery = Discovery(subject.open_nvml(), places.sysfs_root, guard)
        try:
            inventory = discovery.snapshot()
            found = {gpu.pci: _process_ids(discovery, gpu.pci) for gpu in inventory.gpus}
        finally:
            # An open session has the device nodes open, and is looked for below.
            discovery.close()
    finally:
        guard.close()
    root = Path(DeviceFolder.below(places.roots().current().seen, places.host_root).root or "/")
    users = FunctionUsers(root, places.sysfs_root)
    nodes = {gpu.pci: {root / f"dev/nvidia{gpu.minor}"} for gpu in inventory.gpus}
    for function in inventory.pci.physical:
        nodes.setdefault(function.pci, set()).update(users.nodes(function))
    return _Seen(
        inventory,
        {pci: ids for pci, ids in found.items() if ids is not None},
        root / "dev",
        {pci: tuple(sorted(paths)) for pci, paths in nodes.items()},
    )


def _process_ids(discovery: Discovery, pci: PciAddress) -> tuple[int, ...] | str | None:
    try:
        return discovery.process_ids(pci)
    except NotSupported:
        return None
    except DriverError as error:
        return error.what


def _proc(host_root: Path) -> Path:
    below = host_root / "proc"
    return below if (below / "1").exists() else Path("/proc")


def _users(nodes: Mapping[PciAddress, Sequence[Path]], proc: Path) -> dict[PciAddress, tuple[User, ...]]:
    """The processes that have the nodes of each GPU open, also those that compute nothing, such as Xorg."""
    # All of /proc is read for each call: on an idle node once.
    if not users_of([path for paths in nodes.values() for path in paths], proc):
        return {}
    return {pci: users for pci, paths in nodes.items() if (users := users_of(paths, proc))}


def _is_daemon(user: User) -> bool:
    return user.is_of_node and user.name in _DAEMONS


def _kept_open(open_by: Mapping[PciAddress, Sequence[User]]) -> Iterator[tuple[PciAddress, str]]:
    way_out = "stop its service, such as systemctl stop nvidia-persistenced, and start it again afterwards"
    for pci, users in sorted(open_by.items()):
        daemons = [user for user in users if _is_daemon(user)]
        if daemons:
            what = f"{named(daemons)} keeps it open, so it cannot be reset or given to another kernel driver"
            yield pci, f"{what}: {way_out}"


def _in_use(
    seen: _Seen, open_by: Mapping[PciAddress, Sequence[User]], proc: Path | None
) -> Iterator[tuple[PciAddress, str]]:
    """The GPUs that processes use, by NVML and by open files."""
    for pci, ids in seen.process_ids.items():
        if isinstance(ids, str):
            yield pci, f"NVML cannot say which processes use it ({ids}): look at it with nvidia-smi"
        elif ids:
            who = named(user_of(pid, proc) for pid in ids) if proc else f"process {', '.join(map(str, ids))}"
            yield pci, f"{who} uses it: end it, or wait until it has ended"
    way_out = (
        "stop it; monitoring (DCGM: nv-hostengine, dcgm-exporter) and a graphical session (Xorg, gdm) have a "
        "GPU open even while they compute nothing"
    )
    for pci, users in open_by.items():
        others = [user for user in users if not _is_daemon(user)]
        if others:
            yield pci, f"{named(others)} has its device node open: {way_out}"


def _unfit(inventory: Inventory, sysfs_root: Path) -> Iterator[tuple[PciAddress, str]]:
    """The GPUs that are with a virtual machine, cut by somebody, drive a display, or are broken."""
    for function in inventory.pci.physical:
        if function.driver != NVIDIA_KERNEL_DRIVER:
            by = f"the kernel driver {function.driver}" if function.driver else "no kernel driver"
            yield function.pci, f"{by} has it instead of nvidia: bind it to nvidia, if nothing else needs it"
    for function in inventory.pci.functions:
        if function.physical is not None and function.on_vfio:
            what = f"its virtual function {function.pci} is given to virtual machines"
            yield function.physical, f"{what}: end them and remove it"
    for unread in inventory.unread:
        if unread.pci is not None:
            problems = "; ".join(one.message for one in unread.problems)
            yield unread.pci, f"NVML cannot read it ({problems}): repair it first"
    for gpu in inventory.gpus:
        yield from ((gpu.pci, reason) for reason in _unfit_gpu(gpu))
        connector = _display(sysfs_root, gpu.pci)
        if connector:
            yield gpu.pci, f"a display is attached to it ({connector}): unplug it, or verify another GPU"


def _unfit_gpu(gpu: Gpu) -> Iterator[str]:
    for problem in gpu.problems:
        if problem.reason not in _HARMLESS:
            yield f"it is not healthy ({problem.reason}: {problem.message}): repair it first"
    if gpu.vgpu is not None and gpu.vgpu.made:
        yield f"{len(gpu.vgpu.made)} vGPUs exist on it: end their virtual machines and remove them"
    mig = gpu.mig
    if mig is not None and mig.enabled != mig.pending:
        yield f"its next reset turns MIG mode {'on' if mig.pending else 'off'}: reset it first"
    if mig is not None and mig.instances:
        yield (
            f"somebody has made {counted(len(mig.instances), 'GPU instance')} on it: if nobody needs them, "
            f"remove them by nvidia-smi mig -dci -i {gpu.pci} and nvidia-smi mig -dgi -i {gpu.pci}"
        )


def _display(sysfs_root: Path, pci: PciAddress) -> str:
    """A connector of the GPU with a display, empty without one or without nvidia-drm."""
    for status in sorted(Path(drm_folder(sysfs_root, pci)).glob("card*/card*-*/status")):
        if (read_text(status) or "").strip() == "connected":
            return status.parent.name
    return ""


def _gpus_of(held: Held, seen: _Seen) -> tuple[PciAddress, ...]:
    """The GPUs that are meant; none if that cannot be known."""
    by_node = {
        f"/dev/{path.relative_to(seen.dev)}": pci for pci, paths in seen.nodes.items() for path in paths
    }
    found = {pci for pci in seen.nodes if pci in held.gpus}
    return tuple(sorted(found | {by_node[node] for node in held.nodes if node in by_node}))
