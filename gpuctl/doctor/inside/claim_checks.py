"""Checks of prepared claims: the journal against CDI specs, hardware, containers and MPS daemons."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.inside.seen import NodeSeen
from kubeletplugin.claims.journal.entry import Entry, HeldDevice


def held_entries(seen: NodeSeen) -> list[Entry]:
    """The entries of claims that hold devices now."""
    journal = {} if isinstance(seen.journal, Unread) else seen.journal
    return [entry for entry in journal.values() if isinstance(entry, Entry) and entry.holds]


@check
def _journal(seen: NodeSeen) -> Finding:
    """The journal of claims, including files that were set aside.

    Fails if a file cannot be read; warns about files that were set aside, and about half-prepared claims.
    """
    if isinstance(seen.journal, Unread):
        return skipped(f"nothing has been prepared yet: {seen.journal.why}")
    unreadable = [f"{uid}: {one.why}" for uid, one in seen.journal.items() if isinstance(one, Unread)]
    if unreadable:
        return fail(
            f"{counted(len(unreadable), 'file')} of the journal cannot be read",
            "check the disk; the plugin puts such files aside when it starts, and other claims go on",
            unreadable,
        )
    held = held_entries(seen)
    half_done = [f"{one.owner}: {one.state}" for one in held if one.state != "prepared"]
    if seen.put_aside:
        return warn(
            f"{counted(len(seen.put_aside), 'unreadable file')} of the journal put aside",
            "see the folder `unreadable` of the journal, then delete what is in it",
            seen.put_aside,
        )
    if half_done:
        return warn(
            f"{counted(len(half_done), 'claim')} half prepared, or not yet unprepared",
            "this passes within seconds; else the plugin's log and the claim's events say what is in the way",
            half_done,
        )
    return ok(f"{counted(len(held), 'prepared claim')} in the journal")


@check
def _cdi_specs(seen: NodeSeen) -> Finding:
    """CDI specs compared with the journal, and the device nodes that they name.

    Fails if a prepared claim has no spec, a spec has no claim, or a device node is missing.
    """
    specs = {one.uid: one for one in require(seen.specs)}
    journal = require(seen.journal)
    prepared = {one.uid: one for one in held_entries(seen) if one.state == "prepared"}
    lines = [f"{entry.owner}: it has no CDI spec" for uid, entry in prepared.items() if uid not in specs]
    for uid, spec in specs.items():
        if spec.wrong:
            lines.append(f"UID {uid}: {spec.wrong}")
        elif uid not in journal:
            lines.append(f"UID {uid}: a CDI spec without an entry in the journal")
        elif uid in prepared:
            lines += _differences(prepared[uid], spec.names, spec.missing_nodes)
    if lines:
        return fail(
            f"journal and CDI specs differ in {counted(len(lines), 'place')}",
            "the plugin restores lost specs every 15 s: check that it runs, and what empties the folder",
            lines,
        )
    return ok(f"each of {counted(len(prepared), 'prepared claim')} has its CDI spec, and none is left over")


def _differences(entry: Entry, names: tuple[str, ...], missing: tuple[str, ...]) -> Iterator[str]:
    """How the spec of a claim differs from the journal's entry, and which device nodes the node lacks."""
    lacking = sorted({device.cdi_device for device in entry.devices} - set(names))
    if lacking:
        yield f"{entry.owner}: its CDI spec lacks {', '.join(lacking)}"
    if missing:
        yield f"{entry.owner}: the node has no {', '.join(missing)}"


@check
def _prepared_devices(seen: NodeSeen) -> Finding:
    """The GPUs and partitions of prepared claims, compared with NVML.

    Fails if one is missing, or has been replaced by another.
    """
    found = require(seen.inventory).gpus
    require(seen.journal)
    gpus = {str(gpu.pci): gpu.uuid for gpu in found}
    partitions = {one.uuid for gpu in found if gpu.mig is not None for one in gpu.mig.partitions}
    entries = [one for one in held_entries(seen) if one.state == "prepared"]
    lines = [
        f"{entry.owner}: {why}"
        for entry in entries
        for device in entry.devices
        if (why := _missing(device, gpus, partitions))
    ]
    if lines:
        return fail(
            f"{counted(len(lines), 'prepared device')} not on the hardware as when it was prepared",
            "end the pods of these claims; a missing GPU is tainted, and recovers by itself when it is back",
            lines,
        )
    return ok(f"the devices of {counted(len(entries), 'prepared claim')} exist")


def _missing(device: HeldDevice, gpus: dict[str, str], partitions: set[str]) -> str:
    """Which part of a device is missing; empty if none is, or if the entry does not say what was prepared."""
    for pci in device.gpus:
        if pci not in gpus:
            return f"{device.device}: there is no GPU at {pci}"
    if device.uuid and device.pci and gpus[device.pci] != device.uuid:
        return f"{device.device}: another GPU is at {device.pci}"
    # A partition that was made again at the same place has another UUID.
    uuid = str(device.record.get("uuid") or "")
    if uuid.startswith("MIG-") and uuid not in partitions:
        return f"{device.device}: the partition {uuid} does not exist"
    return ""


@check
def _containers(seen: NodeSeen) -> Finding:
    """The devices that the kubelet lists for containers, compared with the journal.

    Fails if a container has a device that is not in the journal.
    """
    in_containers = require(seen.in_containers)
    require(seen.journal)
    # Names of CDI devices begin with the UID of their claim: an ended claim is never taken for a new one.
    strange = sorted(
        in_containers - {device.cdi_device for entry in held_entries(seen) for device in entry.devices}
    )
    if strange:
        return fail(
            f"{counted(len(strange), 'device')} in containers, but not in the journal",
            "end these pods: their devices may be allocated to others; each name begins with the claim's UID",
            strange,
        )
    return ok(f"{counted(len(in_containers), 'device')} in containers, all in the journal")


@check
def _mps(seen: NodeSeen) -> Finding:
    """Records of sharing, compared with the MPS supervisor.

    Fails if a record cannot be read, a daemon is missing or does not run, or a daemon has no share.
    """
    wrong = [f"{one.group}: {one.wrong}" for one in seen.sharing if one.wrong]
    if wrong:
        return fail(
            f"{counted(len(wrong), 'record')} of sharing cannot be read",
            "check the disk; the plugin puts such a file aside, and assumes that every setting was changed",
            wrong,
        )
    wanted = {one.group for one in seen.sharing if one.daemon}
    if isinstance(seen.daemons, Unread):
        if wanted:
            return fail(
                f"{counted(len(wanted), 'GPU')} shared by MPS, but {seen.daemons.why}",
                "start gpu-dra-mps on the node, with the plugin's --mps-dir",
                sorted(wanted),
            )
        return skipped(f"{seen.daemons.why}, and nothing is shared by MPS")
    running = {one.name: one for one in seen.daemons}
    lines = [f"{name}: it has no daemon" for name in sorted(wanted - running.keys())]
    lines += [f"{one.name}: {one.message}" for one in seen.daemons if not one.running]
    lines += [f"{name}: it has a daemon, but nothing is shared" for name in sorted(running.keys() - wanted)]
    if lines:
        return fail(
            f"MPS daemons and the records of sharing differ in {counted(len(lines), 'place')}",
            "the plugin retries every 15 s; the logs of gpu-dra-mps and of the plugin say what is in the way",
            lines,
        )
    return ok(f"{counted(len(running), 'MPS daemon runs', 'MPS daemons run')}, as recorded")


CLAIM_CHECKS = (_journal, _cdi_specs, _prepared_devices, _containers, _mps)
