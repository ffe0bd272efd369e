"""The first start within a boot begins with nothing of the boots before; every later one keeps all there is.

A power cut ends the boot, so it may leave any part of what was written.
"""

import io
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from driver.process.log import configure
from kubeletplugin.claims.recovery import begin_boot
from tests.gpus import Placement, StorageError
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.no_descriptors import no_descriptor_left
from tests.kubeletplugin.share_node import class_slicing, mps
from tests.kubeletplugin.shown_node import THREE
from tests.plugin import CdiStore, KeyedLocks, Parts, Recovered, cdi_spec_file_name, claim_key

NOW, BEFORE, LONG_AGO = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
OF_OTHERS = {
    "data/checkpoint.json": "{}",
    "data/journal/u-1.json": "{}",
    "data/compute-domains/state": "",
    "data/not-a-boot-0000-0000-0000-000000000000/x": "",
    "data/instances": "",
    "cdi/vendor.com-gpu.json": "{}",
    "cdi/k8s.gpu.nvidia.com-claim_.json": "{}",
    "cdi/k8s.gpu.nvidia.com-gpu_u-1.json": "{}",
}
OF_EARLIER_BOOTS = {
    f"data/{BEFORE}/journal/u-1.json": "{",
    f"data/{BEFORE}/journal/unreadable/u-2": "\0",
    f"data/{BEFORE}/sharing/gpu-0000-01-00-0.json": "",
    f"data/{LONG_AGO}/metadata/x": "",
    f"cdi/{cdi_spec_file_name('u-1')}": "{}",
    f"cdi/{cdi_spec_file_name('u-2')}": "{",
}


class Ends(BaseException):
    """The process ends here."""


class Disk:
    """The plugin's folder and that of CDI, with what earlier boots and others have left there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.cdi = folder, folder / "data", folder / "cdi"
        for file, content in {**OF_OTHERS, **OF_EARLIER_BOOTS}.items():
            self.write(file, content)
        # A link may lead anywhere.
        (self.data / str(uuid.UUID(int=4))).symlink_to(self.data / "compute-domains")
        (self.data / str(uuid.UUID(int=5))).write_text("a file")

    def write(self, file: str, content: str = "") -> None:
        (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / file).write_text(content)

    def start(self, boot_id: str = NOW) -> Path:
        return begin_boot(self.data, CdiStore(self.cdi), boot_id)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def boots(self) -> set[str]:
        return {path.name for path in self.data.iterdir()} & {NOW, BEFORE, LONG_AGO}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@contextmanager
def ending_before(change: int) -> Iterator[None]:
    """End before the n-th change of the disk, from 0."""
    left = change

    def changing(real: Callable[..., Any], *args: Any, **more: Any) -> Any:
        nonlocal left
        if left == 0:
            raise Ends
        left -= 1
        return real(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("unlink", "rmdir", "mkdir", "rename", "replace"):
            patch.setattr(os, name, partial(changing, getattr(os, name)))
        yield


def test_the_first_start_removes_earlier_boots_and_nothing_of_others(disk: Disk) -> None:
    log = io.StringIO()
    configure("info", log)
    others = disk.files() - OF_EARLIER_BOOTS.keys()

    folder = disk.start()

    assert (disk.files(), disk.boots(), list(folder.iterdir())) == (others, {NOW}, [])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert '"boots": 2, "specs": 2' in log.getvalue()


def test_later_starts_within_the_boot_keep_all_there_is(disk: Disk) -> None:
    disk.start()
    disk.write(f"data/{NOW}/journal/u-3.json", "{")
    disk.write(f"cdi/{cdi_spec_file_name('u-3')}")
    disk.write(f"data/{BEFORE}/journal/u-4.json")
    there = disk.files()

    assert disk.start() == disk.data / NOW

    assert disk.files() == there


@pytest.mark.parametrize("again_in", [NOW, str(uuid.UUID(int=9))], ids=["this boot", "the next boot"])
def test_a_first_start_that_ends_before_any_change_is_repeated(tmp_path: Path, again_in: str) -> None:
    for change in range(100):
        disk = Disk(tmp_path / str(change))
        others = disk.files() - OF_EARLIER_BOOTS.keys()
        try:
            with ending_before(change):
                disk.start()
        except Ends:
            # Whoever finds the folder of this boot finds nothing of another one.
            assert NOW not in disk.boots()
            # An entry of an earlier boot is never read, and no spec is left to one of this boot.
            disk.start(again_in)
            assert disk.files() == others
            assert not disk.boots() - {again_in}
        else:
            assert change > len(OF_EARLIER_BOOTS)
            return
    pytest.fail("there are fewer changes")


def test_what_cannot_be_removed_or_listed_is_named_and_the_boot_does_not_begin(disk: Disk) -> None:
    with pytest.raises(StorageError, match="Too many open files"), no_descriptor_left():
        disk.start()
    (disk.cdi / cdi_spec_file_name("u-3")).mkdir()
    with pytest.raises(StorageError, match=r"removing .*u-3.json failed: Is a directory"):
        disk.start()
    assert NOW not in disk.boots()


WHOLE, CUT, BY_MPS, SLICED = 0, 1, 2, 3


def test_a_boot_leaves_to_an_admin_what_claims_had_in_the_boot_before(tmp_path: Path) -> None:
    """The CDI folder is on a disk here, and the admin is faster than the plugin."""
    node = FakeNode(tmp_path, "hgx-h100")
    claims = (
        node.claim("whole", WHOLE),
        node.claim_devices("part", node.partition(CUT, "3g.40gb", 4)),
        node.claim_shares("mps", node.shared("mps-4", BY_MPS)),
        node.claim_shares("sliced", node.shared("ts-4", SLICED), config=class_slicing("Long")),
        node.claim("own", 4, 5, config=mps()),
    )
    for ref in claims:
        node.prepare(ref)
    assert (len(node.journal.entries()), len(node.store.uids()), len(node.recorded())) == (5, 5, 3)
    node.stop()
    node.machine.reboot()
    node.mps.running.clear()
    node.boot_id = NOW
    cut = node.handle(CUT)
    cut.set_mig_mode(enabled=True)
    cut.create_compute_instance(cut.create_gpu_instance(THREE, Placement(4, 4)).id, 2)
    node.handle(BY_MPS).set_compute_mode("exclusive-process")
    node.time_slices.set(node.uuid(SLICED), "Short")

    assert node.restart() == Recovered()

    assert (node.journal.entries(), node.store.uids(), node.recorded()) == ((), (), [])
    for part in (node.sharing_reconciler.run_once, node.reconciler.run_once, node.reconciler.finish_releases):
        part()
    assert node.starts(CUT) == [4]
    assert (node.compute_mode(BY_MPS), node.interval(SLICED)) == ("exclusive-process", "Short")
    for position, ref in enumerate(claims):
        if position != CUT:
            assert node.prepare(ref)
    node.stop()


def test_instances_that_start_at_the_same_moment_begin_the_boot_once(node: FakeNode) -> None:
    ref = node.prepared("whole", WHOLE)
    node.stop()
    node.boot_id = NOW
    log = io.StringIO()
    configure("info", log)
    started: list[Parts] = []
    threads = [threading.Thread(target=lambda: started.append(node.instance())) for _ in range(3)]
    with KeyedLocks(node.folder / "locks").holding([claim_key(ref.uid)], 1):  # none gets through at once
        for thread in threads:
            thread.start()
            thread.join(0.05)
    for thread in threads:
        thread.join(30)

    assert [parts.journal.entries() for parts in started] == [()] * 3
    assert log.getvalue().count("removed what an earlier boot left") == 1
    for parts in started:
        parts.peers.close()


def test_litter_of_a_crash_goes_with_the_next_start_but_not_while_another_instance_lives(
    node: FakeNode,
) -> None:
    at_random = "0123456789ab"
    litter = [
        node.boot_files / "journal" / f".tmp-u-1.json-{at_random}",
        node.boot_files / "memory" / f".tmp-u-1_0000:01:00.0.json-{at_random}",
        node.boot_files / "metadata" / f".tmp-x-{at_random}",
        node.cdi / f".tmp-k8s.gpu.nvidia.com-claim_u-1.json-{at_random}",
    ]
    stranger = node.cdi / f".tmp-stranger-{at_random}"
    for path in (*litter, stranger):
        path.touch()
    second = node.instance()
    assert all(path.exists() for path in litter)
    second.peers.close()
    node.restart()
    assert not any(path.exists() for path in litter)
    assert stranger.exists()
