"""A state machine over everything that can happen to the partitions of a node, in any order.

After each step: every GPU instance is somebody else's or accounted for by the journal, what is somebody
else's stays, no two claims overlap, and what a claim was answered is there. In the end nothing is left.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from tests.examples import examples
from tests.gpus import MIG_CHANGES, DriverError, GpuInstance, Placement, gpu_device_name
from tests.kubeletplugin.fake_node import STEPS_OF_DESTROYING, STEPS_OF_MAKING, Crash, FakeNode
from tests.kubeletplugin.held import partition_of
from tests.plugin import ClaimRef, HeldDevice

PLACES = (("1g.10gb", 6), ("1g.10gb", 5), ("1g.10gb", 0), ("2g.20gb", 4), ("3g.40gb", 0), ("3g.40gb", 4))
FOREIGN = ((19, Placement(6, 1)), (9, Placement(4, 4)))
gpu = st.integers(0, 1)
choices = st.tuples(gpu, st.sampled_from([*PLACES, None]))


class PartitionsOfANode(RuleBasedStateMachine):
    """Drives a FakeNode with two GPUs in play; ``answered`` has the claims that the kubelet may start."""

    claims: Bundle[ClaimRef] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="partitions-"))
        self.node = FakeNode(self.folder, "hgx-h100")
        self.answered: set[str] = set()
        self.refs: list[ClaimRef] = []
        self.foreign: set[tuple[int, GpuInstance]] = set()
        self.busy: set[str] = set()

    def teardown(self) -> None:
        """Whatever happened: once nothing fails any more, everything of ours can go."""
        try:
            self.node.machine.heal()
            self.end_processes()
            for ref in self.refs:
                self.node.unprepare(ref)
            assert not any(entry.holds for entry in self.node.journal.entries())
            assert self.node.store.uids() == ()
            for number in (0, 1):
                assert self.instances(number) == {one for at, one in self.foreign if at == number}
                if not self.instances(number):
                    assert self.node.prepare(self.node.claim(f"whole-{number}", number))
        finally:
            self.node.stop()
            shutil.rmtree(self.folder)

    def instances(self, number: int) -> set[GpuInstance]:
        state = self.node.machine.state.gpus[self.node.gpus[number]].mig
        return {GpuInstance(one.id, one.profile_id, one.placement) for one in state.instances}

    @rule(target=claims, first=choices, second=st.none() | choices)
    def create(
        self, first: tuple[int, tuple[str, int] | None], second: tuple[int, tuple[str, int] | None] | None
    ) -> ClaimRef:
        """One or two devices; schedulers that race hand them out whatever others have."""
        wanted = {first} if second is None or second[0] == first[0] else {first, second}
        devices = [
            gpu_device_name(self.node.gpus[number]) if place is None else self.node.partition(number, *place)
            for number, place in sorted(wanted, key=lambda one: one[0])
        ]
        ref = self.node.claim_devices(f"claim-{len(self.refs)}", *devices)
        self.refs.append(ref)
        return ref

    @rule(ref=claims)
    def prepare(self, ref: ClaimRef) -> None:
        try:
            assert self.node.prepare(ref)
        except DriverError:
            self.answered.discard(ref.uid)
        else:
            self.answered.add(ref.uid)

    @rule(ref=claims)
    def unprepare(self, ref: ClaimRef) -> None:
        self.answered.discard(ref.uid)
        try:
            left = self.node.unprepare(ref)
        except DriverError:
            return
        entry = self.node.journal.get(ref.uid)
        if left is None:
            assert entry is None or not entry.holds
        else:
            assert entry is not None
            assert entry.state == "releasing", "it stands in the journal, and is tried again"

    @rule(ref=claims, step=st.sampled_from(STEPS_OF_MAKING))
    def crash_in_prepare(self, ref: ClaimRef, step: str) -> None:
        self.node.crash_after = step
        try:
            self.prepare(ref)
        except Crash:
            if step != "spec written":
                self.answered.discard(ref.uid)
        self.restart()

    @rule(ref=claims, step=st.sampled_from(STEPS_OF_DESTROYING))
    def crash_in_unprepare(self, ref: ClaimRef, step: str) -> None:
        self.node.crash_after = step
        with contextlib.suppress(Crash):
            self.unprepare(ref)
        self.restart()

    @rule()
    def restart(self) -> None:
        self.node.crash_after = None
        self.node.restart()

    @rule()
    def reboot(self) -> None:
        self.node.crash_after = None
        self.node.reboot()
        for forgotten in (self.answered, self.foreign, self.busy):
            forgotten.clear()

    @rule()
    def finish_releases(self) -> None:
        self.node.reconciler.finish_releases()

    @rule(call=st.sampled_from(sorted(MIG_CHANGES)), after=st.booleans(), times=st.integers(1, 3))
    def a_change_will_fail(self, call: str, times: int, *, after: bool) -> None:
        """Before or after it has done its work."""
        (self.node.machine.fail_after if after else self.node.machine.fail)(call, times=times)

    @rule()
    def heal(self) -> None:
        self.node.machine.heal()

    @rule(ref=claims)
    def a_process_stays(self, ref: ClaimRef) -> None:
        entry = self.node.journal.get(ref.uid)
        if ref.uid in self.answered and entry is not None:
            for held in entry.devices:
                if (record := partition_of(held)) is not None:
                    self.node.machine.set_processes(record.uuid, (4242,))
                    self.busy.add(record.uuid)

    @rule()
    def end_processes(self) -> None:
        for uuid in self.busy:
            self.node.machine.set_processes(uuid, ())
        self.busy.clear()

    @rule(number=gpu, wanted=st.sampled_from(FOREIGN))
    def an_admin_cuts(self, number: int, wanted: tuple[int, Placement]) -> None:
        """With nvidia-smi, where nobody has the whole GPU."""
        if any(entry.holds for entry in self.node.journal.holders(str(self.node.gpus[number]))):
            return
        nvml = self.node.machine.nvml()
        nvml.init()
        device = nvml.device_by_pci(self.node.gpus[number])
        try:
            device.set_mig_mode(enabled=True)
            self.foreign.add((number, device.create_gpu_instance(*wanted)))
        except DriverError:
            self.foreign |= {(number, one) for one in self.instances(number) if one.placement == wanted[1]}

    @invariant()
    def every_instance_is_accounted_for(self) -> None:
        for number in (0, 1):
            ours = {
                (record.profile_id, record.placement)
                for entry in self.node.journal.holders(str(self.node.gpus[number]))
                for held in entry.devices
                if (record := partition_of(held)) and record.attempted and self.at(held, number)
            }
            theirs = {one for at, one in self.foreign if at == number}
            assert theirs <= self.instances(number)
            for one in self.instances(number) - theirs:
                assert (one.profile_id, one.placement) in ours

    @invariant()
    def claims_never_overlap(self) -> None:
        for pci in self.node.gpus[:2]:
            holding = [
                held
                for entry in self.node.journal.holders(str(pci))
                for held in entry.devices
                if held.pci == str(pci)
            ]
            spans = [
                record.placement if (record := partition_of(held)) else Placement(0, 8) for held in holding
            ]
            for index, span in enumerate(spans):
                assert not any(span.overlaps(other) for other in spans[index + 1 :])

    @invariant()
    def what_was_answered_is_there(self) -> None:
        for uid in self.answered:
            entry = self.node.journal.get(uid)
            assert entry is not None
            assert entry.state == "prepared"
            assert self.node.store.read(uid)
            for held in entry.devices:
                if (record := partition_of(held)) is not None:
                    assert record.gpu_instance_id in {
                        one.id for number in (0, 1) if self.at(held, number) for one in self.instances(number)
                    }

    def at(self, held: HeldDevice, number: int) -> bool:
        return held.pci == str(self.node.gpus[number])


PartitionsOfANode.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
test_partitions_of_a_node = PartitionsOfANode.TestCase
