"""A state machine over everything that can happen to the claims of a node, in any order.

It assumes nothing that a kubelet, a reboot or an admin does not guarantee. Devices are handed out twice.
Claims stay allocated over a reboot into another configuration, or for hours. The kubelet asks for what it
never had, and for claims that have other devices since. Two instances are at work. Each call of NVML fails or
hangs.

After each step: no two claims have the same of a GPU, the journal and the CDI folder agree, and what the API
and the kubelet still want is never let go.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakegpu.nvml.session import FAKE_GPU_CALLS
from tests.examples import all_examples
from tests.gpus import NODE_CALLS, ClaimRefused, DeviceHeld, DriverError, gpu_device_name
from tests.kubeletplugin.fake_node import STEPS_OF_DESTROYING, STEPS_OF_MAKING, Crash, FakeNode
from tests.plugin import ClaimRef, Entry, Parts

# Its many steps may take minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)

GPUS = 3
WHOLE, CUT = (("whole", 0),), (("1g.10gb", 0), ("1g.10gb", 5), ("2g.20gb", 4), ("3g.40gb", 4))
SLICES = {"whole": 8, "1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4}
HOUR_NS = 3600 * 10**9
HANGING_SECONDS = 0.05

Form = tuple[str, int]
Device = tuple[int, Form]
"""The position of a GPU, and how much of it from which slice on."""

forms = st.sampled_from((*WHOLE, *CUT))
wishes = st.dictionaries(st.integers(0, GPUS - 1), forms, min_size=1, max_size=2)
instances = st.sampled_from(["first", "second"])
calls = st.sampled_from(sorted({*FAKE_GPU_CALLS, *NODE_CALLS}))


def slices(device: Device) -> set[tuple[int, int]]:
    """What of which GPU a device is."""
    gpu, (form, start) = device
    return {(gpu, start + index) for index in range(SLICES[form])}


class ClaimsOfANode(RuleBasedStateMachine):
    """Drives a FakeNode; ``holding`` are the claims that have devices, whether the kubelet knows it or not.

    ``lost_specs`` are those of them that have no CDI spec. A second instance may live beside the first.
    """

    claims: Bundle[ClaimRef] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="claims-"))
        self.node = FakeNode(self.folder, "hgx-h100")
        self.second: Parts | None = None
        self.is_cut = False
        self.refs: list[ClaimRef] = []
        self.devices: dict[str, list[Device]] = {}
        self.holding: set[str] = set()
        self.lost_specs: set[str] = set()

    def teardown(self) -> None:
        """Whatever happened: the node can be emptied, and each GPU handed out whole."""
        try:
            self.restart()
            for ref in self.refs:
                self.node.unprepare(ref)
            assert (self.node.journal.held(), self.node.store.uids()) == ((), ())
            assert self.node.prepare(self.node.claim("last", *range(GPUS)))
        finally:
            self.node.stop()
            shutil.rmtree(self.folder)

    @initialize(target=claims, wish=wishes, instance=instances)
    def begin(self, wish: dict[int, Form], instance: str) -> ClaimRef:
        """There is a claim to begin with."""
        return self.create(wish, instance, is_prepared=True)

    def parts(self, instance: str) -> Parts:
        """The second instance while it lives, where it is asked for, else the first."""
        return self.second if self.second is not None and instance == "second" else self.node.parts

    def allocated(self, wish: dict[int, Form]) -> list[Device]:
        """What a scheduler makes of a wish: the node offers each GPU either whole or in partitions."""
        offered = CUT if self.is_cut else WHOLE
        return [(gpu, form if form in offered else offered[0]) for gpu, form in sorted(wish.items())]

    def allocate(self, name: str, devices: list[Device], uid: str = "") -> ClaimRef:
        gpus = self.node.gpus
        names = [
            gpu_device_name(gpus[gpu]) if form == WHOLE[0] else self.node.partition(gpu, *form)
            for gpu, form in devices
        ]
        ref = self.node.claim_devices(name, *names, uid=uid)
        self.devices[ref.uid] = devices
        return ref

    def entry(self, ref: ClaimRef) -> Entry | None:
        return self.node.journal.get(ref.uid)

    def exists(self, ref: ClaimRef) -> bool:
        stored = self.node.api.get((ref.namespace, ref.name))
        return stored is not None and stored["metadata"]["uid"] == ref.uid

    def blockers(self, ref: ClaimRef) -> set[str]:
        wanted = {one for device in self.devices[ref.uid] for one in slices(device)}
        return {
            uid
            for uid in self.holding - {ref.uid}
            if any(not wanted.isdisjoint(slices(device)) for device in self.devices[uid])
        }

    def let_go(self, *uids: str) -> None:
        self.holding.difference_update(uids)
        self.lost_specs.difference_update(uids)

    def look_again(self, ref: ClaimRef) -> None:
        """After a call that did not end as usual the journal says what the claim has."""
        entry = self.entry(ref)
        self.let_go(ref.uid)
        if entry is not None and entry.holds:
            self.holding.add(ref.uid)
            if not self.node.spec_path(ref).exists():
                self.lost_specs.add(ref.uid)

    @rule(target=claims, wish=wishes, instance=instances, is_prepared=st.booleans())
    def come(self, wish: dict[int, Form], instance: str, *, is_prepared: bool) -> ClaimRef:
        """The scheduler may hand a device out twice: a force-deleted pod, two schedulers."""
        return self.create(wish, instance, is_prepared=is_prepared)

    def create(self, wish: dict[int, Form], instance: str, *, is_prepared: bool) -> ClaimRef:
        ref = self.allocate(f"claim-{len(self.refs)}", self.allocated(wish))
        self.refs.append(ref)
        if is_prepared:
            self.prepare_as(ref, self.devices[ref.uid], instance)
        return ref

    @rule(ref=claims, wish=wishes, instance=instances)
    def allocate_anew(self, ref: ClaimRef, wish: dict[int, Form], instance: str) -> None:
        """No pod needs the claim for a while, then another one does, and gets other devices by it.

        A kubelet that has lost its records does not unprepare it before.
        """
        if self.exists(ref):
            self.node.register()
            former = self.devices[ref.uid]
            self.allocate(ref.name, self.allocated(wish), ref.uid)
            wanted, self.devices[ref.uid] = self.devices[ref.uid], former
            self.prepare_as(ref, wanted, instance)

    @rule(ref=claims, instance=instances, ends_after=st.none() | st.sampled_from(STEPS_OF_MAKING))
    def prepare(self, ref: ClaimRef, instance: str, ends_after: str | None) -> None:
        """The instance ends after this step where the call comes to it."""
        with self.ending(ref, ends_after):
            self.prepare_as(ref, self.devices[ref.uid], instance)

    def prepare_as(self, ref: ClaimRef, wanted: list[Device], instance: str) -> None:
        """Have a claim prepared that was allocated these devices, and may have others."""
        entry, preparer = self.entry(ref), self.parts(instance).preparer
        is_known = entry is not None and entry.state == "prepared"
        former, self.devices[ref.uid] = self.devices[ref.uid], wanted
        if not self.exists(ref) and not is_known:
            self.devices[ref.uid] = former
            with pytest.raises(ClaimRefused):
                preparer.prepare(ref, self.node.call())
        elif not self.exists(ref) and entry and entry.changed_ns < self.node.registered_ns:
            # The API server is asked once after each registration of the kubelet; then the journal answers.
            with suppress(ClaimRefused, DeviceHeld):
                preparer.prepare(ref, self.node.call())
            self.look_again(ref)
        elif self.blockers(ref):
            with pytest.raises(DeviceHeld):
                preparer.prepare(ref, self.node.call())
            self.look_again(ref)
            if ref.uid in self.holding:
                self.devices[ref.uid] = former
        else:
            assert len(preparer.prepare(ref, self.node.call())) == len(wanted)
            self.holding.add(ref.uid)
            self.lost_specs.discard(ref.uid)

    @rule(ref=claims, instance=instances, ends_after=st.none() | st.sampled_from(STEPS_OF_DESTROYING))
    def unprepare(self, ref: ClaimRef, instance: str, ends_after: str | None) -> None:
        with self.ending(ref, ends_after):
            assert self.parts(instance).preparer.unprepare(ref, self.node.call()) is None
            self.let_go(ref.uid)

    @contextmanager
    def ending(self, ref: ClaimRef, step: str | None) -> Iterator[None]:
        """Within the block the process ends after a step, if there is one, and starts again then."""
        self.node.crash_after = step
        held = ref.uid in self.holding
        try:
            yield
        except Crash:
            self.look_again(ref)
            assert (ref.uid in self.holding) == (step in STEPS_OF_MAKING or (held and step != "released"))
            self.restart()
        self.node.crash_after = None

    @rule(uid=st.uuids().map(str) | st.sampled_from(["../journal", "", "u" * 99]), instance=instances)
    def unprepare_what_nobody_knows(self, uid: str, instance: str) -> None:
        ref = ClaimRef("team", "nobody", uid)
        assert self.parts(instance).preparer.unprepare(ref, self.node.call()) is None

    @rule(ref=claims, call=calls, how=st.sampled_from(["fails", "hangs"]), prepares=st.booleans())
    def nvml_fails_in_a_call(
        self, ref: ClaimRef, call: str, how: Literal["fails", "hangs"], *, prepares: bool
    ) -> None:
        """The claim then has nothing that it did not have before, but for what is still to be taken back."""
        before, failed = self.entry(ref), False
        work = self.node.prepare if prepares else self.node.unprepare
        with self.failing(call, how):
            try:
                work(ref)
            except DriverError:
                failed = True
        entry = self.entry(ref)
        self.look_again(ref)
        if prepares and failed and (before is None or not before.holds):
            assert entry is None or entry.state in ("released", "releasing")
        if not prepares:
            assert entry is None or entry.state in ("released", "releasing") or (failed and entry == before)

    @contextmanager
    def failing(self, call: str, how: Literal["fails", "hangs"]) -> Iterator[None]:
        """Within the block one call of NVML fails once, or each hangs until the block ends."""
        if how == "fails":
            self.node.machine.fail(call, times=1)
        else:
            self.restart(HANGING_SECONDS)
            self.node.machine.hang(call)
        try:
            yield
        finally:
            self.node.machine.heal()
            if how == "hangs":
                self.restart()

    @rule(ref=claims)
    def lose_spec(self, ref: ClaimRef) -> None:
        if self.node.spec_path(ref).exists():
            self.node.spec_path(ref).unlink()
            self.lost_specs.add(ref.uid)

    @rule(ref=claims)
    def delete(self, ref: ClaimRef) -> None:
        """The kubelet forgets the claim, too: nobody will unprepare it."""
        self.node.api.pop((ref.namespace, ref.name), None)

    @rule(hours=st.integers(0, 1), instance=instances)
    def go_through_the_journal(self, hours: int, instance: str) -> None:
        """At once or an hour later: claims that are allocated stay so, prepared or not."""
        for entry in self.node.journal.entries():
            self.node.journal.put(replace(entry, changed_ns=entry.changed_ns - hours * HOUR_NS))
        reconciler = self.parts(instance).reconciler
        reconciler.restore_specs()
        prepared = {entry.uid for entry in self.node.journal.held() if entry.state == "prepared"}
        self.lost_specs -= prepared
        gone = self.holding - {one.uid for one in self.refs if self.exists(one)}
        assert set(reconciler.run_once()) == gone
        releasing = {entry.uid for entry in self.node.journal.held() if entry.state == "releasing"}
        assert set(reconciler.finish_releases()) == releasing
        self.let_go(*gone, *releasing)
        tombs = {entry.uid for entry in self.node.journal.entries() if not entry.holds}
        assert not hours or tombs <= gone | releasing

    @rule(cut=st.booleans())
    def reboot(self, *, cut: bool) -> None:
        """It ends every claim; the kubelet prepares those that it still has anew, as they were allocated."""
        self.end_the_second()
        self.is_cut = cut
        self.node.reboot()
        self.holding.clear()
        self.lost_specs.clear()

    @rule()
    def restart(self, guard_seconds: float = 5.0) -> None:
        self.end_the_second()
        self.node.crash_after = None
        self.node.guard_seconds = guard_seconds
        self.node.restart()

    @precondition(lambda self: self.second is None)
    @rule()
    def a_second_instance_begins(self) -> None:
        self.second = self.node.instance()

    def end_the_second(self) -> None:
        if self.second is not None:
            self.second.peers.close()
            self.second = None

    @invariant()
    def no_two_claims_have_the_same(self) -> None:
        taken = [one for uid in self.holding for device in self.devices[uid] for one in slices(device)]
        assert len(taken) == len(set(taken))

    @invariant()
    def the_journal_says_who_has_what(self) -> None:
        names = {ref.uid: ref.name for ref in self.refs}
        for instance in ("first", "second"):
            held = self.parts(instance).journal.held()
            assert {entry.uid for entry in held} == self.holding
            for entry in held:
                assert entry.name == names[entry.uid]
                gpus = {str(self.node.gpus[gpu]) for gpu, _ in self.devices[entry.uid]}
                assert set(entry.gpus) == gpus

    @invariant()
    def the_cdi_folder_agrees_with_the_journal(self) -> None:
        assert set(self.node.store.uids()) == self.holding - self.lost_specs


ClaimsOfANode.TestCase.settings = settings(
    max_examples=all_examples(60), stateful_step_count=25, deadline=None
)
test_claims_of_a_node = ClaimsOfANode.TestCase
