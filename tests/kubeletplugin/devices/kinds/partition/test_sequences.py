"""No sequence of calls, faults and crashes loses a partition, leaks one, or touches what is not ours."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.examples import examples
from tests.gpus import MIG_CHANGES, Code, DriverError, GpuInstance, load_catalogue, profile_slug
from tests.kubeletplugin.fake_node import Crash
from tests.kubeletplugin.partition_scene import Scene
from tests.plugin import PartitionRecord

CATALOGUES = {
    "hgx-h100": "h100-80gb",
    "dgx-a100": "a100-40gb",
    "rtx-pro-6000-octo": "rtx-pro-6000-96gb",
    "a30-quad": "a30-24gb",
}
STEPS = ["gpu instance", "compute instance", "made", "destroyed"]


class OneGpu(RuleBasedStateMachine):
    """One GPU, claims with a record each as the journal has it, and an admin who makes instances, too."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.records: dict[str, PartitionRecord] = {}
        self.foreign: set[GpuInstance] = set()

    @initialize(machine=st.sampled_from(sorted(CATALOGUES)))
    def begin(self, machine: str) -> None:
        self.scene = Scene(Path(self.folder.name), machine)
        if machine in ("dgx-a100", "a30-quad"):
            self.scene.turn_on()
        catalogue = load_catalogue(CATALOGUES[machine])
        self.places = [
            (profile, place.start)
            for profile in catalogue.profiles
            for place in catalogue.placements[profile.id]
        ]

    @rule(data=st.data())
    def make(self, data: st.DataObject) -> None:
        profile, start = data.draw(st.sampled_from(self.places))
        claim = f"{profile_slug(profile.name)} at {start}"
        record = self.records.get(claim) or self.scene.located(profile_slug(profile.name), start)
        with self._journaled(claim, record):
            made = self.scene.make(record, ours=self._ours(claim))
            assert self.scene.partitions.exists(self.scene.pci(), made)
            assert self.scene.noted == made

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(sorted(self.records)))
        record = self.records[claim]
        with self._journaled(claim, record):
            self.scene.destroy(record)
            assert not self.scene.partitions.exists(self.scene.pci(), record)
        self.scene.partitions.turn_off_if_empty(self.scene.pci())

    @rule(
        call=st.sampled_from(sorted(MIG_CHANGES)),
        code=st.sampled_from([Code.UNKNOWN, Code.IN_USE, Code.UNINITIALIZED, Code.NO_PERMISSION]),
        times=st.integers(1, 3),
        after=st.booleans(),
    )
    def spoil(self, call: str, code: Code, times: int, *, after: bool) -> None:
        fail = self.scene.machine.fail_after if after else self.scene.machine.fail
        fail(call, code=code, times=times)

    @rule()
    def heal(self) -> None:
        self.scene.machine.heal()

    @rule(step=st.sampled_from(STEPS))
    def crash_soon(self, step: str) -> None:
        self.scene.crash_after = step

    @rule(step=st.sampled_from([*STEPS, ""]))
    def fill_disk(self, step: str) -> None:
        self.scene.disk_full_at = step or None

    @precondition(lambda self: self.scene.mode()[0])
    @rule(data=st.data())
    def admin_makes(self, data: st.DataObject) -> None:
        profile, start = data.draw(st.sampled_from(self.places))
        size = self.scene.located(profile_slug(profile.name), start).size
        before = self.scene.instances()
        taken = any(
            record.attempted and record.start < start + size and start < record.start + record.size
            for record in self.records.values()
        )
        if not taken:  # between an attempt and its retry nobody can tell whose an instance is
            try:
                self.foreign.add(self.scene.foreign(profile.id, start, size))
            except DriverError:
                self.foreign |= set(self.scene.instances()) - set(before)

    @invariant()
    def nothing_of_others_is_touched_and_nothing_is_leaked(self) -> None:
        if not hasattr(self, "scene"):
            return
        there = set(self.scene.instances())
        assert self.foreign <= there
        for instance in there - self.foreign:
            owners = [
                record
                for record in self.records.values()
                if record.attempted
                and (record.profile_id, record.placement) == (instance.profile_id, instance.placement)
            ]
            assert len(owners) == 1, f"{instance} belongs to {owners}"

    def teardown(self) -> None:
        """With the faults gone, the journal alone is enough to clean up."""
        if hasattr(self, "scene"):
            self.scene.machine.heal()
            self.scene.crash_after = self.scene.disk_full_at = None
            for record in self.records.values():
                self.scene.destroy(record)
            assert set(self.scene.instances()) == self.foreign
            self.scene.guard.close()
        self.folder.cleanup()

    @contextmanager
    def _journaled(self, claim: str, record: PartitionRecord) -> Iterator[None]:
        """Afterwards the claim's record is the one that was noted last, whatever happened."""
        self.scene.noted = record
        with suppress(DriverError, Crash):
            yield
        assert self.scene.noted is not None
        self.records.pop(claim, None)
        if self.scene.noted.attempted:
            self.records[claim] = self.scene.noted

    def _ours(self, claim: str) -> frozenset[int]:
        return frozenset(
            record.gpu_instance_id
            for other, record in self.records.items()
            if other != claim and record.gpu_instance_id is not None
        )


TestOneGpu = pytest.mark.filterwarnings("error")(OneGpu.TestCase)
TestOneGpu.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
