"""Whatever happens to a node, no function has a driver that neither the journal nor an admin explains."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.examples import examples
from tests.kubeletplugin.devices.kinds.passthrough.world import World

OPERATIONS = examples(10_000)
CALM_EVERY = 400
numbers = st.integers(0, 7)

Operation = Callable[[World, random.Random], None]

WEIGHTED: dict[Operation, int] = {
    lambda world, chance: world.create(chance.randrange(7)): 8,
    lambda world, chance: world.prepare_one(chance.randrange(100)): 24,
    lambda world, chance: world.unprepare_one(chance.randrange(100)): 16,
    lambda world, chance: world.delete_one(chance.randrange(100)): 4,
    lambda world, _: world.finish(): 6,
    lambda world, _: world.look(): 3,
    lambda world, chance: world.die_at_call(chance.randrange(12), after=chance.random() < 0.5): 8,
    lambda world, chance: world.die_at_step(chance.randrange(15)): 6,
    lambda world, _: world.end_process(): 3,
    lambda world, _: world.boot(): 1,
    lambda world, chance: world.hold(chance.randrange(4)): 3,
    lambda world, _: world.let_go(): 5,
    lambda world, chance: world.run_on(chance.randrange(4)): 4,
    lambda world, chance: world.spoil(chance.randrange(3), chance.randrange(5)): 4,
    lambda world, _: world.heal(): 5,
    lambda world, chance: world.rebind(chance.randrange(7), chance.randrange(3)): 5,
    lambda world, _: world.reload_driver(): 1,
}


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


@pytest.mark.timeout(400)  # in the long profile about half a minute on an idle core
def test_no_sequence_of_operations_leaves_a_driver_that_the_journal_does_not_explain(tmp_path: Path) -> None:
    world = World(tmp_path)
    chance = random.Random(20261122)  # noqa: S311 - it only has to be the same each time
    operations = chance.choices(list(WEIGHTED), list(WEIGHTED.values()), k=OPERATIONS)
    for number, operation in enumerate(operations):
        operation(world, chance)
        try:
            check(world)
            if number % CALM_EVERY == CALM_EVERY - 1:
                check_calm(world)
        except AssertionError as error:
            pytest.fail(f"after operation {number}: {error}")
    check_calm(world)
    world.stop()


class AnyNode(RuleBasedStateMachine):
    """The same operations in sequences that shrink to what matters."""

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
    def reload_driver(self) -> None:
        self.world.reload_driver()

    @invariant()
    def every_driver_is_explained(self) -> None:
        check(self.world)


TestAnyNode = AnyNode.TestCase
TestAnyNode.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
