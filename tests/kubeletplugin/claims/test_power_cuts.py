"""A power cut leaves any part of what was not written durably; the boot after it begins with nothing.

The end of a process alone, which loses nothing that was written, is in ``test_crashes``.
"""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.errors import DriverError
from driver.nvml.mig import Placement
from driver.process.log import configure
from kubeletplugin.assembly import Parts
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key
from kubeletplugin.claims.recovery import Recovered
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.examples import examples
from tests.kubeletplugin.cut_node import THREE, handle, starts
from tests.kubeletplugin.fake_node import (
    STEPS_OF_DESTROYING,
    STEPS_OF_SHARED_MAKING,
    Crash,
    FakeNode,
)
from tests.kubeletplugin.share_node import class_slicing, interval, mode, mps, recorded, shared, uuid
from tests.power_cut import PowerCutDisk

FOREIGN_SPEC = "vendor.com-gpu.json"
WHOLE, CUT, BY_MPS, SLICED = 0, 1, 2, 3
STEPS = (
    "",
    *sorted({*STEPS_OF_SHARED_MAKING, *STEPS_OF_DESTROYING, "committed", "metadata written", "spec written"}),
)

Choose = Callable[[int], int]


class CutNode:
    """A node whose power fails, with the CDI folder on its disk, and its claims by what they are for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.disk = PowerCutDisk(folder, folder / "journal", folder / "sharing", folder / "cdi")
        with self.disk.followed():
            self.node = FakeNode(folder, "hgx-h100")
        (self.node.cdi / FOREIGN_SPEC).write_text("{}")
        node = self.node
        self.claims = (
            node.claim("whole", WHOLE, uid="u-0"),
            node.claim_devices("part", node.partition(CUT, "3g.40gb", 4), uid="u-1"),
            node.claim_shares("mps", shared(node, "mps-4", BY_MPS), uid="u-2"),
            node.claim_shares(
                "sliced", shared(node, "ts-4", SLICED), uid="u-3", config=class_slicing("Long")
            ),
            node.claim("own", 4, 5, uid="u-4", config=mps()),
        )

    def work(self, ref: ClaimRef, step: str, *, ends: bool) -> None:
        """Prepare a claim, and unprepare it where it ``ends``; the plugin may end after the step."""
        self.node.crash_after = step or None
        try:
            with suppress(DriverError):  # what an admin made is in the way of some
                self.node.prepare(ref)
                if ends:
                    self.node.unprepare(ref)
        except Crash:
            self.node.restart()
        self.node.crash_after = None

    def cut(self, choose: Choose, *, forgets_specs: bool = False) -> Recovered:
        """The power fails and comes back; an admin is faster than the plugin."""
        self.node.stop()
        self.disk.cut(choose)
        if forgets_specs:
            shutil.rmtree(self.node.cdi)
            self.node.cdi.mkdir()
        self.node.machine.reboot()
        self.node.mps.running.clear()
        self.node.boot_id += "-again"
        self.admin_works()
        with self.disk.followed():
            return self.node.restart()

    def admin_works(self) -> None:
        """By hand, and on the GPUs that claims had: a partition at the same place, a mode, a time-slice."""
        cut = handle(self.node, CUT)
        cut.set_mig_mode(enabled=True)
        made = cut.create_gpu_instance(THREE, Placement(4, 4))
        cut.create_compute_instance(made.id, 2)
        handle(self.node, BY_MPS).set_compute_mode("exclusive-process")
        self.node.time_slices.set(uuid(self.node, SLICED), "Short")

    def assert_begins_with_nothing(self) -> None:
        node = self.node
        assert (node.journal.entries(), node.journal.take_set_aside()) == ((), ())
        assert (node.store.uids(), recorded(node)) == ((), [])
        litter = [path.name for folder in (self._folder, node.cdi) for path in folder.rglob(".tmp-*")]
        assert litter == []
        assert (node.cdi / FOREIGN_SPEC).exists() or list(node.cdi.iterdir()) == []

    def assert_admin_is_left_alone(self) -> None:
        """Also after the passes that finish what crashes have left."""
        self.node.sharing_reconciler.run_once()
        self.node.reconciler.run_once()
        self.node.reconciler.finish_releases()
        assert starts(self.node, CUT) == [4]
        assert mode(self.node, BY_MPS) == "exclusive-process"
        assert interval(self.node, SLICED) == "Short"

    def assert_claims_can_be_prepared(self) -> None:
        """All but the one in whose place the admin's partition lies."""
        for position, ref in enumerate(self.claims):
            if position != CUT:
                assert self.node.prepare(ref)
                self.node.unprepare(ref)


@contextmanager
def opened() -> Iterator[CutNode]:
    with TemporaryDirectory() as folder:
        node = CutNode(Path(folder))
        try:
            yield node
        finally:
            node.node.stop()


work = st.tuples(st.integers(0, 4), st.sampled_from(STEPS), st.booleans())


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_after_a_power_cut_nothing_of_the_boot_before_is_there_or_is_read(data: st.DataObject) -> None:
    def choose(possibilities: int) -> int:
        return data.draw(st.integers(0, possibilities - 1))

    with opened() as node:
        for _ in range(2):
            with node.disk.followed():
                for claim, step, ends in data.draw(st.lists(work, min_size=1, max_size=4)):
                    node.work(node.claims[claim], step, ends=ends)
            assert node.cut(choose, forgets_specs=data.draw(st.booleans())) == Recovered()
            node.assert_begins_with_nothing()
            node.assert_admin_is_left_alone()
        node.assert_claims_can_be_prepared()


def test_a_power_cut_that_loses_nothing_leaves_nothing_either() -> None:
    with opened() as node:
        with node.disk.followed():
            for ref in node.claims:
                node.work(ref, "", ends=False)
        assert len(node.node.journal.entries()) == len(node.node.store.uids()) == 5
        assert len(recorded(node.node)) == 3
        assert node.cut(lambda possibilities: possibilities - 1) == Recovered()
        node.assert_begins_with_nothing()
        node.assert_admin_is_left_alone()
        node.assert_claims_can_be_prepared()


def test_a_power_cut_after_the_first_start_of_all_that_keeps_only_the_specs_leaves_nothing() -> None:
    """A spec without an entry is kept where the version before wrote it, which set no marker."""
    with opened() as node:
        with node.disk.followed():
            node.work(node.claims[WHOLE], "", ends=False)

        def newest_spec_only(possibilities: int) -> int:
            return possibilities - 1 if "-claim_" in node.disk.asked else 0

        assert node.cut(newest_spec_only) == Recovered()
        node.assert_begins_with_nothing()


def test_what_is_written_within_a_boot_outlives_the_plugin() -> None:
    with opened() as node:
        node.work(node.claims[WHOLE], "", ends=False)
        before = node.node.journal.entries(), node.node.store.uids()
        node.node.restart()
        assert (node.node.journal.entries(), node.node.store.uids()) == before


def test_instances_that_start_at_the_same_moment_drop_once(node: FakeNode) -> None:
    ref = node.claim("whole", WHOLE)
    node.prepare(ref)
    node.stop()
    node.boot_id = "boot-2"
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
    litter = [
        node.folder / "journal" / ".tmp-u-1.json-0123456789ab",
        node.cdi / ".tmp-k8s.gpu.nvidia.com-claim_u-1.json-0123456789ab",
    ]
    for path in litter:
        path.touch()
    second = node.instance()
    assert all(path.exists() for path in litter)
    second.peers.close()
    node.restart()
    assert not any(path.exists() for path in litter)


@pytest.mark.parametrize("marker", [None, "an-earlier-boot\n"])
def test_an_upgrade_and_a_downgrade_within_a_boot_keep_what_claims_hold(
    node: FakeNode, marker: str | None
) -> None:
    """The version that knows no marker leaves the one that lies there as it is."""
    refs = [node.claim("whole", WHOLE), node.claim_shares("mps", shared(node, "mps-4", BY_MPS))]
    before = [node.prepare(ref) for ref in refs]
    (node.folder / "boot").unlink()
    if marker is not None:
        (node.folder / "boot").write_text(marker)
    assert node.restart() == Recovered()
    assert [node.prepare(ref) for ref in refs] == before
    assert node.mps.started == 1
    for ref in refs:
        node.unprepare(ref)
    assert (recorded(node), node.store.uids()) == ([], ())
