"""Whatever happens to a node, no function has a driver that neither the journal nor an admin explains."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.examples import examples
from tests.kubeletplugin.devices.kinds.passthrough.world import World

numbers = st.integers(0, 7)


def check(world: World) -> None:
    """What must be true after every operation."""
    assert world.unexplained() == []
    assert world.held_twice() == []
    assert world.not_as_prepared() == []


def check_calm(world: World) -> None:
    """Once all trouble has ended, and all claims, the journal holds nothing and all is as others left it."""
    world.calm_down()
    check(world)
    assert [entry for entry in world.journal.entries() if entry.holds] == []
    assert list(world.cdi.glob("*.json")) == []


class AnyNode(RuleBasedStateMachine):
    """Anything may happen to it; sequences shrink to what matters."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self._folder.name))

    def teardown(self) -> None:
        check_calm(self.world)
        self.world.stop()
        self._folder.cleanup()

    @rule(number=st.integers(0, 6))
    def create_and_prepare(self, number: int) -> None:
        self.world.create(number)
        self.world.prepare_one(len(self.world.claims) - 1)

    @rule(number=numbers)
    def prepare(self, number: int) -> None:
        self.world.prepare_one(number)

    @rule(number=numbers)
    def unprepare(self, number: int) -> None:
        self.world.unprepare_one(number)

    @rule(number=numbers)
    def delete(self, number: int) -> None:
        self.world.delete_one(number)

    @rule()
    def finish(self) -> None:
        self.world.finish()

    @rule(calls=st.integers(0, 12), after=st.booleans())
    def die_at_call(self, calls: int, *, after: bool) -> None:
        self.world.die_at_call(calls, after=after)

    @rule(steps=st.integers(0, 15))
    def die_at_step(self, steps: int) -> None:
        self.world.die_at_step(steps)

    @rule()
    def end_process(self) -> None:
        self.world.end_process()

    @rule()
    def boot(self) -> None:
        self.world.boot()

    @rule(gpu=st.integers(0, 3))
    def hold(self, gpu: int) -> None:
        self.world.hold(gpu)

    @rule()
    def let_go(self) -> None:
        self.world.let_go()

    @rule(gpu=st.integers(0, 3))
    def run_on(self, gpu: int) -> None:
        self.world.run_on(gpu)

    @rule(kind=st.integers(0, 2), place=st.integers(0, 4))
    def spoil(self, kind: int, place: int) -> None:
        self.world.spoil(kind, place)

    @rule(function=st.integers(0, 6), driver=st.integers(0, 2))
    def rebind(self, function: int, driver: int) -> None:
        self.world.rebind(function, driver)

    @rule()
    def look(self) -> None:
        self.world.look()

    @rule()
    def heal(self) -> None:
        self.world.heal()

    @rule()
    def all_is_well_once_all_is_calm(self) -> None:
        check_calm(self.world)

    @rule()
    def reload_driver(self) -> None:
        self.world.reload_driver()

    @invariant()
    def every_driver_is_explained(self) -> None:
        check(self.world)


TestAnyNode = pytest.mark.timeout(400)(AnyNode.TestCase)
TestAnyNode.settings = settings(max_examples=examples(120), stateful_step_count=80, deadline=None)
