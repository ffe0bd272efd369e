"""A state machine over everything that can happen to the claims of a node, in any order.

After each step: no device has two holders, the journal and the CDI folder agree, and what the API
and the kubelet still want is never let go.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from driver.errors import ClaimRefused, DeviceHeld
from kubeletplugin.wire.claim_call import ClaimRef
from tests.examples import examples
from tests.kubeletplugin.fake_node import STEPS_OF_PREPARE, STEPS_OF_UNPREPARE, Crash, FakeNode

GPUS = 4


class ClaimsOfANode(RuleBasedStateMachine):
    """Drives a FakeNode; ``holding`` is what the kubelet believes to be prepared."""

    claims: Bundle[ClaimRef] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="claims-"))
        self.node = FakeNode(self.folder)
        self.gpus: dict[str, tuple[int, ...]] = {}
        self.holding: set[str] = set()
        self.lost_specs: set[str] = set()
        self.unfinished: set[str] = set()
        self.count = 0

    def teardown(self) -> None:
        self.node.stop()
        shutil.rmtree(self.folder)

    @rule(target=claims, gpus=st.sets(st.integers(0, GPUS - 1), min_size=1, max_size=2))
    def create(self, gpus: set[int]) -> ClaimRef:
        """The scheduler may hand a device out twice: a force-deleted pod, two schedulers."""
        self.count += 1
        ref = self.node.claim(f"claim-{self.count}", *sorted(gpus))
        self.gpus[ref.uid] = tuple(sorted(gpus))
        return ref

    def blockers(self, ref: ClaimRef) -> set[str]:
        wanted = set(self.gpus[ref.uid])
        return {
            uid for uid in self.holding | self.unfinished if uid != ref.uid and wanted & set(self.gpus[uid])
        }

    @rule(ref=claims)
    def prepare(self, ref: ClaimRef) -> None:
        gone = (ref.namespace, ref.name) not in self.node.api
        known = ref.uid in self.holding and ref.uid not in self.unfinished
        if gone and not known:
            with pytest.raises(ClaimRefused):
                self.node.prepare(ref)
        elif self.blockers(ref):
            with pytest.raises(DeviceHeld):
                self.node.prepare(ref)
        else:
            assert len(self.node.prepare(ref)) == len(self.gpus[ref.uid])
            self.holding.add(ref.uid)
            self.lost_specs.discard(ref.uid)
            self.unfinished.discard(ref.uid)

    @rule(ref=claims)
    def unprepare(self, ref: ClaimRef) -> None:
        self.node.unprepare(ref)
        for known in (self.holding, self.lost_specs, self.unfinished):
            known.discard(ref.uid)

    @rule(ref=claims, step=st.sampled_from(STEPS_OF_PREPARE))
    def crash_in_prepare(self, ref: ClaimRef, step: str) -> None:
        self.node.crash_after = step
        try:
            self.prepare(ref)
        except Crash:
            self.holding.add(ref.uid)
            self.unfinished.discard(ref.uid)
            if self.node.spec_path(ref).exists():
                self.lost_specs.discard(ref.uid)
            else:
                assert step in ("committed", "metadata written")
                self.lost_specs.add(ref.uid)
        self.node.crash_after = None
        self.node.restart()

    @rule(ref=claims, step=st.sampled_from(STEPS_OF_UNPREPARE))
    def crash_in_unprepare(self, ref: ClaimRef, step: str) -> None:
        self.node.crash_after = step
        try:
            self.unprepare(ref)
        except Crash:
            self.lost_specs.add(ref.uid)
            if step == "released" or ref.uid not in self.holding:
                for known in (self.holding, self.lost_specs, self.unfinished):
                    known.discard(ref.uid)
        self.node.crash_after = None
        self.node.restart()

    @rule(ref=claims)
    def lose_spec(self, ref: ClaimRef) -> None:
        if self.node.spec_path(ref).exists():
            self.node.spec_path(ref).unlink()
            self.lost_specs.add(ref.uid)

    @rule(ref=claims)
    def delete_claim_and_reconcile(self, ref: ClaimRef) -> None:
        """The claim goes while the plugin is away, and the kubelet forgets it: nobody will unprepare."""
        self.node.api.pop((ref.namespace, ref.name), None)
        gone = {
            uid for uid in self.holding if all(uid != c["metadata"]["uid"] for c in self.node.api.values())
        }
        released = set(self.node.reconciler.run_once())
        assert released == gone
        for known in (self.holding, self.lost_specs, self.unfinished):
            known.difference_update(released)

    @rule()
    def restore_specs(self) -> None:
        self.node.reconciler.restore_specs()
        self.lost_specs.clear()

    @rule()
    def reboot(self) -> None:
        """It ends every claim; the kubelet prepares those that it still has anew."""
        self.node.reboot()
        for known in (self.holding, self.lost_specs, self.unfinished):
            known.clear()

    @rule()
    def restart(self) -> None:
        self.node.restart()

    @invariant()
    def no_device_has_two_holders(self) -> None:
        for pci in self.node.gpus:
            assert len(self.node.journal.holders(str(pci))) <= 1

    @invariant()
    def the_journal_holds_what_the_kubelet_holds(self) -> None:
        assert {entry.uid for entry in self.node.journal.entries() if entry.holds} == self.holding

    @invariant()
    def the_cdi_folder_agrees_with_the_journal(self) -> None:
        assert set(self.node.store.uids()) == self.holding - self.lost_specs


ClaimsOfANode.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
test_claims_of_a_node = ClaimsOfANode.TestCase
