"""What a transcript shows of a node: how it is, in words that are the same on every run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.clusters import Object
from tests.gpus import read_function
from tests.kubeletplugin.channel_node import ChannelNode
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import made
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import Entry, HeldDevice, cdi_spec_file_name

MIB = 1 << 20
_AT_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""The id of a share, which the scheduler makes up; all other UUIDs follow from names."""


def look(node: FakeNode, rack: ChannelNode | None, names: Mapping[str, str]) -> dict[str, str]:
    """How the node is, by what it concerns; ``names`` are those of claims by UID."""
    return {key: text for key, text in _all(node, rack, names) if text}


def _all(node: FakeNode, rack: ChannelNode | None, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    state = node.machine.state
    for entry in node.journal.entries():
        devices = ", ".join(map(_share, entry.devices))
        yield names.get(entry.uid, entry.uid), f"{entry.state}{_odd(node, entry)} {devices}".rstrip()
    for entry in () if rack is None else rack.channels.journal.entries():
        channels = ", ".join(held.device for held in entry.devices)
        yield f"gang {names.get(entry.uid, entry.uid)}", f"{entry.state} {channels}".rstrip()
    ours = {cdi_spec_file_name(uid) for uid in names}
    yield "other CDI files", ", ".join(sorted({one.name for one in node.cdi.iterdir()} - ours))
    for number, pci in enumerate(node.gpus):
        yield f"GPU {number}", ", ".join(_gpu(node, number))
        for one in state.gpus[pci].memory.limits:
            limit = f"{one.soft_bytes // MIB} to {one.hard_bytes // MIB}"
            yield f"limit of {one.cgroup.rpartition('/')[2]} on GPU {number}", f"{limit} MiB"
    for name, daemon in node.mps.running.items():
        users = " of several users" if daemon.multi_user else ""
        limits = ", ".join(map(str, daemon.pinned_memory_mib))
        limits = f"{daemon.active_thread_percentage} %, {limits} MiB"
        yield f"daemon {name}", f"{limits} of {', '.join(daemon.devices)}{users}"
    fabric = state.fabric.connected if node.machine.spec.fabric_manager else ()
    yield "the switches connect", ", ".join(map(str, fabric))
    for folder in ("sharing", "fabric", "memory"):
        paths = sorted(path.stem for path in (node.boot_files / folder).glob("*.json"))
        yield f"records of {folder}", ", ".join(paths)
    if isinstance(node, PassthroughNode):
        for address, driver in node.changed().items():
            yield f"function {address}", str(driver)
        for function, vgpu in made(node).items():
            yield f"vGPU on {function}", f"type {vgpu.type_id} {vgpu.uuid}".rstrip()


def _odd(node: FakeNode, entry: Entry) -> str:
    """What is odd about the spec of a claim: only one that is prepared has one, as it was written."""
    path, wants = node.cdi / cdi_spec_file_name(entry.uid), entry.state == "prepared"
    if not path.exists():
        return " without spec" if wants else ""
    is_as_written = hashlib.sha256(path.read_bytes()).hexdigest() == entry.spec_sha256
    return " with a spec" if not wants else "" if is_as_written else " with another spec"


def _gpu(node: FakeNode, number: int) -> Iterator[str]:
    """How a GPU differs from one that nobody has used."""
    gpu = node.machine.state.gpus[node.gpus[number]]
    catalogue = node.machine.spec.product.mig
    if gpu.mig.enabled or gpu.mig.pending:
        yield "MIG" if gpu.mig.enabled and gpu.mig.pending else "MIG pending"
    for one in gpu.mig.instances:
        assert catalogue is not None
        profile = catalogue.profile(one.profile_id).name
        yield f"{profile}@{one.placement.start}{'' if one.compute_instances else ' empty'}"
    if gpu.compute_mode != "default":
        yield gpu.compute_mode
    if gpu.time_slice:
        yield f"time-slice {node.interval(number)}"
    if gpu.persistence:
        yield "persistent"
    if isinstance(node, PassthroughNode):
        function = read_function(node.sysfs, node.gpus[number])
        if function is not None and function.virtual:
            yield f"{len(function.virtual)} virtual functions"
        override = node.sysfs / "bus/pci/devices" / str(node.gpus[number]) / "driver_override"
        if override.exists() and (driver := override.read_text().strip()) != "(null)":
            yield f"override {driver}"


def readable(node: FakeNode, text: str) -> str:
    """The text without what differs from run to run, and with short names of GPUs."""
    text = text.replace(str(node.folder), "FOLDER")
    for number, pci in enumerate(node.gpus):
        for word in (node.machine.uuid(pci), node.whole(number), str(pci)):
            text = text.replace(word, f"gpu{number}")
    return _AT_RANDOM.sub("(uuid)", text)


def edits_shown(edits: Object) -> Iterator[str]:
    """What the edits of a CDI spec give a container."""
    yield from edits.get("env", ())
    for one in edits.get("deviceNodes", ()):
        # All others are nodes of the fake driver, which are what this machine lets a test make.
        numbers = f" {one['major']}:{one['minor']} {one['permissions']}" if "imex" in one["path"] else ""
        yield one["path"] + numbers
    for mount in edits.get("mounts", ()):
        yield f"{mount['hostPath']} at {mount['containerPath']} {mount['options'][0]}"
    yield from (Path(one["path"]).name for one in edits.get("hooks", ()) if "memory" in one["path"])


def _share(held: HeldDevice) -> str:
    share, words = held.share, [held.device]
    if share is not None:
        amounts = ((share.shares, "shares"), (share.memory_bytes // MIB, "MiB"))
        words += [f"{amount} {unit}" for amount, unit in amounts if amount]
        words += [share.interval] if share.interval else []
        if share.strategy == "MPS":
            words.append(f"{share.active_thread_percentage} % {share.pinned_memory_mib} MiB")
    if held.memory_limit_bytes is not None:
        words.append(f"held to {held.memory_limit_bytes // MIB} MiB")
    return " ".join(words)
