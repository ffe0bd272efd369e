"""A state machine over everything that can happen to the fabric partitions of a node, in any order.

After each step: no two partitions that the switches connect share a GPU, each one that is connected has a
record or is somebody else's, and what is somebody else's stays. Once all is well, each claim that was
answered has its partition connected, and in the end none of ours is.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from driver.fabric.api import CALLS
from tests.examples import all_examples
from tests.gpus import DriverError, FabricError, gpu_device_name
from tests.kubeletplugin.devices.fabric.fabric_node import (
    MACHINE,
    STEPS_OF_ACTIVATING,
    STEPS_OF_DEACTIVATING,
    claim_modules,
    connected,
    records,
)
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.plugin import ClaimRef

SETS = (
    *((module,) for module in (1, 2, 3, 4)),
    *((1, 2), (3, 4), (5, 6), (1, 2, 3, 4), tuple(range(1, 9))),
    *((1, 3), (1, 2, 3), (4, 5)),
)
FOREIGN = (6, 14, 2)
calls = st.sampled_from(sorted(CALLS))
codes = st.sampled_from([-2, -8, -10, None])


class FabricOfANode(RuleBasedStateMachine):
    """Drives a FakeNode; ``answered`` has the claims that the kubelet may start, with their modules."""

    claims: Bundle[ClaimRef] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fabric-"))
        self.node = FakeNode(self.folder, MACHINE)
        for pci in self.node.gpus:
            self.node.published_attributes[gpu_device_name(pci)] = {"partition8": {"int": 0}}
        self.fabric = self.node.machine.fabric
        self.modules: dict[str, frozenset[int]] = {}
        self.answered: set[str] = set()
        self.refs: list[ClaimRef] = []
        self.foreign: set[int] = set()

    def teardown(self) -> None:
        """Whatever happened: once nothing fails any more, everything of ours can go."""
        try:
            self.all_is_well()
            for ref in self.refs:
                self.node.unprepare(ref)
            self.node.fabric.run_once()
            assert not any(entry.holds for entry in self.node.journal.entries())
            assert (set(connected(self.node)), records(self.node)) == (self.foreign, [])
        finally:
            self.node.stop()
            shutil.rmtree(self.folder)

    def all_is_well(self) -> None:
        self.fabric.heal()
        if not self.fabric.state.running:
            self.restart_fabric_manager(keeps=True)
        if self.fabric.state.waits:
            self.fabric.manager().set_activated(self.fabric.state.connected)

    def of(self, number: int) -> frozenset[int]:
        spec = self.node.machine.spec.fabric_manager
        assert spec is not None
        return spec.partitions[number]

    @rule(target=claims, modules=st.sampled_from(SETS))
    def claim(self, modules: tuple[int, ...]) -> ClaimRef:
        ref = claim_modules(self.node, f"claim-{len(self.refs)}", *modules)
        self.refs.append(ref)
        self.modules[ref.uid] = frozenset(modules)
        return ref

    @rule(ref=claims, crash=st.sampled_from([None, None, *STEPS_OF_ACTIVATING]))
    def prepare(self, ref: ClaimRef, crash: str | None) -> None:
        self.node.crash_after = crash
        try:
            self.node.prepare(ref)
            self.answered.add(ref.uid)
        except Crash:
            self.node.restart()
        except DriverError:
            pass
        self.node.crash_after = None

    @rule(ref=claims, crash=st.sampled_from([None, None, *STEPS_OF_DEACTIVATING]))
    def unprepare(self, ref: ClaimRef, crash: str | None) -> None:
        self.answered.discard(ref.uid)
        self.node.crash_after = crash
        try:
            self.node.unprepare(ref)
        except Crash:
            self.node.restart()
        except DriverError:
            pass
        self.node.crash_after = None

    @rule()
    def keeper_passes(self) -> None:
        self.node.fabric.run_once()

    @rule()
    def releases_are_finished(self) -> None:
        self.node.reconciler.finish_releases()

    @rule()
    def plugin_starts_anew(self) -> None:
        self.node.restart()

    @rule(call=calls, code=codes, after=st.booleans())
    def a_call_fails(self, call: str, code: int | None, after: bool) -> None:
        self.fabric.fail(call, code, times=1, after=after)

    @rule(keeps=st.booleans())
    def restart_fabric_manager(self, keeps: bool) -> None:
        """Who has partitions tells it at once of all: nobody finds out afterwards what is connected."""
        self.fabric.start(keeps=keeps)
        if not keeps:
            self.foreign.clear()
        elif self.foreign:
            with contextlib.suppress(FabricError):
                self.fabric.manager().set_activated(self.fabric.state.connected)

    @rule()
    def fabric_manager_stops(self) -> None:
        self.fabric.stop()

    @rule(number=st.sampled_from(FOREIGN))
    def somebody_else_activates(self, number: int) -> None:
        with contextlib.suppress(FabricError):
            if self.fabric.state.faults or self.fabric.state.waits:
                return
            self.fabric.manager().activate(number)
            self.foreign.add(number)

    @rule()
    def machine_restarts(self) -> None:
        self.node.reboot()
        self.answered.clear()
        self.foreign.clear()

    @rule()
    def what_is_well_is_as_claims_have_it(self) -> None:
        self.all_is_well()
        self.node.reconciler.finish_releases()
        self.node.fabric.run_once()
        wanted = {self.modules[uid] for uid in self.answered}
        assert wanted <= {self.of(number) for number in connected(self.node)}

    @invariant()
    def no_two_share_a_gpu(self) -> None:
        modules = [module for number in connected(self.node) for module in self.of(number)]
        assert len(modules) == len(set(modules))

    @invariant()
    def whatever_is_connected_has_a_record(self) -> None:
        ours = {f"partition-{number}" for number in connected(self.node) if number not in self.foreign}
        assert ours <= set(records(self.node))

    @invariant()
    def what_is_somebody_elses_stays(self) -> None:
        assert self.foreign <= set(connected(self.node))

    @invariant()
    def only_claims_that_are_a_partition_are_answered(self) -> None:
        spec = self.node.machine.spec.fabric_manager
        assert spec is not None
        assert all(self.modules[uid] in spec.partitions for uid in self.answered)


TestFabricOfANode = FabricOfANode.TestCase
TestFabricOfANode.settings = settings(max_examples=all_examples(30), stateful_step_count=25, deadline=None)
