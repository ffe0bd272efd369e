"""What the released version wrote for claims of every kind is read today, and it reads what today writes."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver.devices.names import gpu_device_name, pool_name
from driver.kinds.registry import KINDS
from envtest.former import RELEASED, former_version, python_command, python_environment
from fakegpu.machine import FakeMachine
from kubeletplugin.cdi.store import CdiStore
from kubeletplugin.journal.entry import Entry, MemoryRecord, decode, encode
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import Journal
from kubeletplugin.sharing.records import SharingRecord, SharingRecords
from kubeletplugin.wire.mps_daemon import read_spec, write_spec
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.journal.record_released import (
    REBUILT_KINDS,
    RECORDED,
    RELEASED_KIND,
    STATES,
)
from tests.processes.every_kind import Kind
from tests.processes.node import MACHINE, NODE

READS = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from kubeletplugin.entry import decode
from kubeletplugin.mps.spec import read_spec
from kubeletplugin.sharing_records import SharingRecords
folder = Path(sys.argv[1])
found = {
    "journal": {file.name: asdict(decode(file.read_bytes())) for file in folder.glob("journal/*.json")},
    "sharing": {f"{one.group}.json": asdict(one) for one in SharingRecords(folder / "sharing", "").look()},
    "mps": {file.name: asdict(read_spec(file.read_bytes())) for file in folder.glob("mps/*.json")},
}
print(json.dumps(found))
"""
"""What the released version's code has to say of a folder, as a program of its own."""

# Strategy, shares, bytes, interval, percent of the threads, MiB.
SHARES = {
    "own-mps": ("MPS", 0, 0, "", 40, 0),
    "own-time-slicing": ("TimeSlicing", 0, 0, "Long", 100, 0),
    "static-mps-share": ("MPS", 1, 0, "", 50, 20224),
    "partition-own-mps": ("MPS", 0, 0, "", 40, 0),
    "partition-mps-share": ("MPS", 1, 0, "", 50, 10048),
    "time-sliced-share": ("TimeSlicing", 1, 0, "Short", 100, 0),
    "mps-share": ("MPS", 1, 0, "", 25, 20389),
    "fractional": ("MPS", 0, 20 << 30, "", 25, 20480),
    "preparing-share": ("MPS", 1, 0, "", 25, 20389),
}

# Profile, first memory slice, GPU instance, whether a claim has made it.
PARTITIONS = {
    "static": ("3g.40gb", 4, 2, False),
    "static-mps-share": ("3g.40gb", 0, 1, False),
    "partition": ("1g.10gb", 6, 13, True),
    "layout-partition": ("1g.20gb", 4, 5, True),
    "partition-own-mps": ("2g.20gb", 0, 3, True),
    "partition-mps-share": ("2g.20gb", 2, 4, True),
    "preparing": ("1g.10gb", 6, 13, True),
    "releasing": ("1g.10gb", 6, 13, True),
}

# By GPU and the rest of the group's name: strategy, whether modes changed, interval, daemon, applied.
GROUPS = {
    (0, ""): ("MPS", True, "Default", True, False),
    (1, ""): ("MPS", True, "Default", True, True),
    (2, ""): ("TimeSlicing", False, "Long", False, True),
    (3, "-static-3g-40gb-0"): ("MPS", False, "Default", True, True),
    (4, "-mig-2g-20gb-0"): ("MPS", False, "Default", True, True),
    (4, "-mig-2g-20gb-2"): ("MPS", False, "Default", True, True),
    (5, ""): ("TimeSlicing", False, "Short", False, True),
    (6, ""): ("MPS", True, "Default", True, True),
    (7, ""): ("MPS", True, "Default", True, True),
}

REWRITES = """
import sys
from pathlib import Path
from kubeletplugin.entry import decode, encode
file = Path(sys.argv[1])
file.write_bytes(encode(decode(file.read_bytes())))
"""
"""The released version's code writes an entry anew."""

EVERY_KIND = pytest.mark.parametrize("kind", STATES, ids=lambda kind: kind.name)
LISTED = tuple(FakeMachine.open(MACHINE).state.listed())
GPUS = tuple(map(gpu_device_name, LISTED))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of what was recorded."""
    shutil.copytree(RECORDED, tmp_path / "released")
    return tmp_path / "released"


def recorded(kind: Kind) -> bytes:
    return (RECORDED / "journal" / f"{kind.uid}.json").read_bytes()


def content(data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(data)["entry"]
    return entry


def written_again(kind: Kind) -> dict[str, Any]:
    """What is written of an entry after it was read."""
    return content(encode(decode(recorded(kind))))


def entries() -> tuple[Entry, ...]:
    return tuple(decode(recorded(kind)) for kind in STATES)


def boot_id() -> str:
    return str(content(recorded(RELEASED_KIND))["boot_id"])


def records_of(folder: Path) -> SharingRecords:
    """The records of sharing below a folder."""
    return SharingRecords(folder / "sharing", lambda: Era(boot_id()), KINDS.parse)


def keeps(new: Any, old: Any) -> bool:
    """Whether all that the old document says stands in the new one, which may say more."""
    if isinstance(old, Mapping):
        return isinstance(new, Mapping) and all(key in new and keeps(new[key], of) for key, of in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(keeps, new, old))
    return bool(new == old)


@EVERY_KIND
def test_an_entry_says_what_its_claim_holds(kind: Kind) -> None:
    entry = decode(recorded(kind))
    assert (entry.uid, entry.state, entry.rebuilt) == (kind.uid, STATES[kind], kind in REBUILT_KINDS)
    assert entry.shares == (kind.name in SHARES)
    assert entry.holds == (kind is not RELEASED_KIND)
    if entry.holds:
        (held,) = entry.devices
        device = kind.device(GPUS)
        assert (held.device, held.pci) == (device, str(LISTED[kind.gpu]))
        assert (held.share_id, held.admin_access) == (kind.share_id, kind.admin)
        assert held.cdi_device.startswith(f"{kind.uid}-{device}")
        assert held.pool == pool_name(NODE)


@EVERY_KIND
def test_an_entry_keeps_all_that_it_says_when_it_is_written_again(kind: Kind) -> None:
    assert keeps(written_again(kind), content(recorded(kind)))


@EVERY_KIND
def test_an_entry_that_is_written_again_says_what_is_shared_and_what_was_made(kind: Kind) -> None:
    for device in written_again(kind)["devices"]:
        share, partition = device["share"], device["partition"]
        if share is not None:
            amounts = (share["shares"], share["memory_bytes"], share["interval"])
            limits = (share["active_thread_percentage"], share["pinned_memory_mib"])
            share = (share["strategy"], *amounts, *limits)
        if partition is not None:
            place = (partition["profile"], partition["start"])
            partition = (*place, partition["gpu_instance_id"], partition["attempted"])
        assert (share, partition) == (SHARES.get(kind.name), PARTITIONS.get(kind.name))


def test_the_holders_of_each_gpu_are_found(folder: Path) -> None:
    journal = Journal(folder / "journal", lambda: True)
    for index, pci in enumerate(LISTED):
        held = {kind.uid for kind in STATES if kind.gpu == index and kind is not RELEASED_KIND}
        assert {entry.uid for entry in journal.holders(str(pci))} == held
    assert journal.take_set_aside() == ()


def test_the_specs_are_those_of_the_entries(folder: Path) -> None:
    store = CdiStore(folder / "cdi")
    prepared = {entry.uid: entry for entry in entries() if entry.state == "prepared"}
    assert store.uids() == tuple(sorted(prepared))
    for uid, entry in prepared.items():
        spec = store.read(uid)
        assert spec is not None
        validate(json.loads(spec))
        assert store.device_names(uid) == tuple(held.cdi_device for held in entry.devices)
        assert entry.rebuilt or entry.spec_sha256 == hashlib.sha256(spec).hexdigest()


def test_a_plugin_that_starts_there_has_nothing_to_recover(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    node = FakeNode(tmp_path / "node", MACHINE)
    node.boot_id = boot_id()
    shutil.copytree(folder, node.folder, dirs_exist_ok=True)

    recovered = node.restart()

    assert (recovered.rebuilt, recovered.removed, recovered.failed) == ((), (), ())
    assert {entry.uid: entry.state for entry in node.journal.entries()} == {
        kind.uid: state for kind, state in STATES.items()
    }
    node.stop()


def test_the_records_of_sharing_are_read(folder: Path) -> None:
    def seen(record: SharingRecord) -> tuple[str, bool, str, bool, bool]:
        assert set(record.compute_modes) <= set(record.gpus)
        changed = bool(record.compute_modes)
        return record.strategy, changed, record.interval, record.daemon, record.applied

    records = records_of(folder).look()
    expected = {GPUS[gpu] + suffix: of for (gpu, suffix), of in GROUPS.items()}
    assert {record.group: seen(record) for record in records} == expected


def test_the_records_of_daemons_are_read_and_written_alike() -> None:
    for file in sorted((RECORDED / "mps").iterdir()):
        daemon = read_spec(file.read_bytes())
        assert daemon.name == file.stem
        assert write_spec(daemon) == file.read_bytes()


def test_the_released_version_reads_what_is_written_today(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "mps").mkdir()
    for entry in entries():
        (tmp_path / "journal" / f"{entry.uid}.json").write_bytes(encode(entry))
    sharing = records_of(tmp_path)
    for record in records_of(RECORDED).look():
        sharing.put(record)
    for file in (RECORDED / "mps").iterdir():
        (tmp_path / "mps" / file.name).write_bytes(write_spec(read_spec(file.read_bytes())))

    released = former_version(RELEASED)
    done = subprocess.run(
        python_command("-c", READS, str(tmp_path)),
        env=python_environment(released),
        capture_output=True,
        text=True,
        check=True,
    )

    read = json.loads(done.stdout)
    assert read["journal"] == {f"{kind.uid}.json": content(recorded(kind)) for kind in STATES}
    for name in ("sharing", "mps"):
        files = sorted((RECORDED / name).iterdir())
        assert read[name] == {file.name: json.loads(file.read_bytes()) for file in files}


def test_the_released_version_drops_the_limits_of_an_entry_and_keeps_its_share(tmp_path: Path) -> None:
    share = next(entry for entry in entries() if entry.state == "prepared" and entry.shares)
    limited = replace(
        share, devices=tuple(replace(held, memory=MemoryRecord(1, 2)) for held in share.devices)
    )
    file = tmp_path / "entry.json"
    file.write_bytes(encode(limited))
    assert decode(file.read_bytes()) == limited
    command = python_command("-c", REWRITES, str(file))
    subprocess.run(command, env=python_environment(former_version(RELEASED)), check=True)

    read = decode(file.read_bytes())
    assert not read.is_limited
    assert [held.share for held in read.devices] == [held.share for held in share.devices]
