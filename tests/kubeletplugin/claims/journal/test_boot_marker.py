"""The first start within a boot drops what earlier boots have left, and nothing of the boot that runs."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver.errors import StorageError
from driver.process.log import configure
from kubeletplugin.claims.journal.boot_marker import BootFiles, Dropped, drop_earlier_boots, remove_litter
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, encode
from kubeletplugin.devices.fabric.records import partition_of
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name
from kubeletplugin.reports.healing.records import gpu_of
from kubeletplugin.sharing.memory.ledger import place_of
from kubeletplugin.sharing.records import group_of
from tests.kubeletplugin.no_descriptors import no_descriptor_left

NOW, BEFORE = "boot-now", "boot-before"
PCI, GROUP = "0000:01:00.0", "gpu-0000-01-00-0"
HELD = HeldDevice("gpu", "node/gpu.nvidia.com", GROUP, PCI, "GPU-1", f"u-1-{GROUP}", kind="whole")
STRANGERS = ("vendor.com-gpu.json", "k8s.gpu.nvidia.com-claim_.json", "k8s.gpu.nvidia.com-gpu_u-1.json")


class Disk:
    """The files of one node; a start of the plugin takes them as they are."""

    def __init__(self, folder: Path) -> None:
        data = folder / "data"
        records = {"sharing": group_of, "fabric": partition_of, "memory": place_of, "healing": gpu_of}
        self.files = BootFiles(data, folder / "cdi", records)
        self.sharing = data / "sharing"
        for made in (self.files.journal, self.sharing, self.files.cdi):
            made.mkdir(parents=True)
        self.locks = data / "locks"

    def start(self, boot_id: str = NOW) -> Dropped:
        return drop_earlier_boots(self.files, boot_id)

    def marked(self, content: str | None) -> None:
        self.files.marker.unlink(missing_ok=True)
        if content is not None:
            self.files.marker.write_text(content)

    def entry(self, uid: str, content: str | bytes) -> None:
        """An entry of the boot with this id, or whatever these bytes are."""
        if isinstance(content, str):
            content = encode(Entry(uid, "team", "train", "prepared", content, 5, (HELD,), "digest"))
        (self.files.journal / f"{uid}.json").write_bytes(content)

    def record(self, content: str | bytes, group: str = GROUP) -> None:
        """A record of the boot with this id, or whatever these bytes are."""
        data = json.dumps({"boot_id": content}).encode() if isinstance(content, str) else content
        (self.sharing / f"{group}.json").write_bytes(data)

    def spec(self, uid: str) -> None:
        (self.files.cdi / cdi_spec_file_name(uid)).write_text("{}")

    def left(self) -> list[str]:
        """What lies in the three folders."""
        folders = (self.files.journal, self.sharing, self.files.cdi)
        return sorted(name for folder in folders for name in os.listdir(folder))


def logged() -> io.StringIO:
    """Where the log goes from now on."""
    log = io.StringIO()
    configure("info", log)
    return log


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_all_of_an_earlier_boot_is_dropped_with_one_line(disk: Disk) -> None:
    disk.marked(f"{BEFORE}\n")
    for uid in ("u-1", "u-2"):
        disk.entry(uid, BEFORE)
        disk.spec(uid)
    disk.spec("u-3")
    disk.record(BEFORE)
    log = logged()
    assert disk.start() == Dropped(entries=2, records=1, specs=3)
    assert disk.left() == []
    (line,) = lines(log)
    assert (line["entries"], line["records"], line["specs"]) == (2, 1, 3)


def test_once_it_was_dropped_all_stays_for_the_boot(disk: Disk) -> None:
    disk.marked(f"{BEFORE}\n")
    disk.start()
    disk.entry("u-1", b"{")
    disk.spec("u-2")
    disk.record(b"{")
    left = disk.left()
    log = logged()
    assert disk.start() == Dropped()
    assert (disk.left(), lines(log)) == (left, [])
    assert disk.start("boot-after") == Dropped(1, 1, 1)


def test_a_first_start_on_an_empty_node_only_sets_the_marker(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for made in (disk.files.journal, disk.sharing, disk.files.cdi):
        made.rmdir()
    log = logged()
    assert disk.start() == Dropped()
    assert disk.files.marker.read_text() == f"{NOW}\n"
    assert lines(log) == []


@pytest.mark.parametrize("marker", [None, BEFORE, "", f"{NOW} \n", "\0\0\0"])
def test_what_proves_to_be_of_this_boot_stays_whatever_the_marker_says(
    disk: Disk, marker: str | None
) -> None:
    disk.marked(marker)
    disk.entry("u-now", NOW)
    disk.spec("u-now")
    disk.entry("u-lost-its-spec", NOW)
    disk.record(NOW)
    disk.entry("u-before", BEFORE)
    disk.spec("u-before")
    disk.record(BEFORE, "gpu-0000-02-00-0")
    assert disk.start() == Dropped(1, 1, 1)
    assert disk.left() == [
        f"{GROUP}.json",
        cdi_spec_file_name("u-now"),
        "u-lost-its-spec.json",
        "u-now.json",
    ]


OF_ANOTHER_CLAIM = encode(replace(Entry("u-9", "", "", "prepared", NOW, 5), name="x"))
DAMAGED = {
    "empty": b"",
    "torn": encode(Entry("u-1", "team", "train", "prepared", NOW, 5, (HELD,)))[:-9],
    "with a false checksum": encode(Entry("u-1", "a", "train", "prepared", NOW, 5)).replace(b'"a"', b'"b"'),
    "of another claim": OF_ANOTHER_CLAIM,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("marker", [BEFORE, None])
def test_an_entry_that_proves_nothing_is_dropped(disk: Disk, content: bytes, marker: str | None) -> None:
    disk.marked(marker)
    disk.entry("u-1", content)
    disk.spec("u-1")
    disk.start()
    assert disk.left() == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"5", b'"boot-now"', b"\xff", b'{"boot_id": null}'])
def test_a_record_that_proves_nothing_is_dropped(disk: Disk, content: bytes) -> None:
    disk.record(content)
    assert disk.start() == Dropped(records=1)
    assert disk.left() == []


def test_without_a_marker_a_spec_without_an_entry_goes(disk: Disk) -> None:
    disk.spec("u-lost")
    disk.entry("u-before", BEFORE)
    disk.spec("u-before")
    assert disk.start() == Dropped(entries=1, specs=2)
    assert disk.left() == []


def test_files_of_others_stay(disk: Disk) -> None:
    disk.marked(BEFORE)
    for name in STRANGERS:
        (disk.files.cdi / name).write_text("{}")
    (disk.files.journal / "unreadable").mkdir()
    (disk.files.journal / "unreadable" / "u-1-0011").write_text("{")
    (disk.files.journal / "u-folder.json").mkdir()
    (disk.sharing / f"{GROUP}.unreadable").write_text("{")
    left = disk.left()
    assert disk.start() == Dropped()
    assert disk.left() == left


def test_a_start_that_ends_before_the_marker_is_set_is_repeated(disk: Disk) -> None:
    """Whatever the moment: a spec never stays behind without its entry, from which it would be rebuilt."""
    for ends_at in range(20):
        disk.marked(None)
        for uid in ("u-1", "u-2"):
            disk.entry(uid, BEFORE)
            disk.spec(uid)
        disk.record(BEFORE)
        left = ends_at

        def unlink(path: str, *, real: object = os.unlink) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            assert callable(real)
            real(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "unlink", unlink)
            try:
                disk.start()
            except KeyboardInterrupt:
                assert not disk.files.marker.exists()
        ended = left > 0
        disk.start()
        assert disk.left() == []
        if ended:
            return
    pytest.fail("there are fewer removals")


def test_a_marker_that_cannot_be_read_counts_as_another(disk: Disk) -> None:
    disk.files.marker.symlink_to(disk.files.marker.name)
    disk.spec("u-lost")
    assert disk.start() == Dropped(specs=1)
    assert disk.files.marker.read_text() == f"{NOW}\n"


def test_a_marker_that_cannot_be_written_is_named_with_the_way_out(disk: Disk) -> None:
    disk.files.marker.mkdir()
    (disk.files.marker / "x").touch()
    with pytest.raises(StorageError, match=r"writing .*/boot failed: .*: check that the folder"):
        disk.start()


def test_a_folder_that_cannot_be_listed_is_named_and_nothing_is_marked(disk: Disk) -> None:
    disk.sharing.rmdir()
    disk.sharing.write_text("")
    with pytest.raises(StorageError, match=r"listing .*sharing failed: Not a directory: check the disk"):
        disk.start()
    assert not disk.files.marker.exists()


def test_without_file_descriptors_nothing_is_dropped(disk: Disk) -> None:
    disk.marked(f"{NOW}\n")
    disk.entry("u-1", NOW)
    left = disk.left()
    with (
        pytest.raises(StorageError, match=r"reading .*/boot failed: Too many open files"),
        no_descriptor_left(),
    ):
        disk.start()
    assert disk.left() == left


def test_litter_goes_and_what_cannot_go_harms_nobody(disk: Disk) -> None:
    rest = "0123456789ab"
    litter = {
        disk.files.marker.parent: f".tmp-boot-{rest}",
        disk.files.journal: f".tmp-u-1.json-{rest}",
        disk.sharing: f".tmp-{GROUP}.json-{rest}",
        disk.files.cdi: f".tmp-{cdi_spec_file_name('u-1')}-{rest}",
    }
    for folder, name in litter.items():
        (folder / name).touch()
        (folder / f".tmp-stranger-{rest}").touch()
    (disk.files.cdi / f".tmp-{cdi_spec_file_name('u-2')}-{rest}").mkdir()

    remove_litter(disk.files, lambda: False)
    assert all((folder / name).exists() for folder, name in litter.items())
    log = logged()
    remove_litter(disk.files, lambda: True)

    assert not any((folder / name).exists() for folder, name in litter.items())
    assert all((folder / f".tmp-stranger-{rest}").exists() for folder in litter)
    assert [line["event"] for line in lines(log)] == ["cannot remove unfinished files"]


RECORDS = [
    ("sharing", f"{GROUP}.json"),
    ("fabric", "partition-3.json"),
    ("memory", f"u-1_{PCI}.json"),
    ("healing", f"{PCI}.json"),
]


@pytest.mark.parametrize(("folder", "name"), RECORDS)
def test_a_record_stays_within_its_boot_only_whosever_it_is(disk: Disk, folder: str, name: str) -> None:
    at = disk.files.data / folder
    at.mkdir(exist_ok=True)
    (at / "notes.json").write_text("mine")
    (at / f".tmp-{name}-0123456789ab").write_text("{")
    remove_litter(disk.files, lambda: True)
    assert os.listdir(at) == ["notes.json"]
    for content, stays in (
        (json.dumps({"boot_id": NOW}), True),
        (json.dumps({"boot_id": BEFORE}), False),
        ("{", False),
    ):
        disk.marked(f"{BEFORE}\n")
        (at / name).write_text(content)
        assert disk.start() == Dropped(records=0 if stays else 1)
        assert (at / name).exists() == stays
    assert os.listdir(at) == ["notes.json"]
