"""No sequence of configurations, claims, wipes and restarts gives one place of a GPU to two claims."""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.publish.changeover import Published, Seen, published
from driver.devices.region import overlap
from tests.clusters import Backoff, Changeover, with_blocked
from tests.controller import mig_node
from tests.controller.mig_node import BALANCED, DYNAMIC, HIDDEN, POOL, SMALL, WHOLE, offers, slices
from tests.examples import all_examples
from tests.gpus import ApiError, Device, NodeState, Placement

FORMS = [WHOLE, DYNAMIC, BALANCED, SMALL, HIDDEN]
CONFIGURED = st.lists(st.sampled_from(FORMS), min_size=1, max_size=2)
DEVICES = {device.name: device for form in FORMS for device in offers(form).devices}


OWN = ("remembered", "foreign", "wanted")
"""What each controller has of its own."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A device that a claim was given."""

    device: Device
    span: Placement | None


class Node(RuleBasedStateMachine):
    """What is stored, what claims have, and a scheduler that knows no more than what is published.

    Slices go at any time, all of them or some; the controller ends at any time, and the next one knows only
    what is stored. Two controllers take turns, as those of two releases do that do not share a folder: each
    remembers what it did itself, sees what the other writes, and may have another configuration. A claim that
    was given a device may never be prepared.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changeover = Changeover(POOL, self._allocated, 0.0, Backoff(0.0, 0.0))
        self.wanted = offers(WHOLE)
        self.stored: list[dict[str, Any]] = []
        self.taken: dict[str, Taken] = {}
        self.prepared: set[str] = set()
        self.can_list = True
        self.begin()
        self.other = dict(vars(self))
        self.begin()

    @rule()
    def take_turns(self) -> None:
        """The other controller goes on, with what it remembers."""
        mine = {name: getattr(self, name) for name in OWN}
        vars(self).update({name: self.other[name] for name in OWN})
        self.other = mine

    @rule()
    def begin(self) -> None:
        """The controller ends, and another one begins."""
        self.remembered = Published()
        self.foreign: frozenset[str] = frozenset()

    @rule(forms=CONFIGURED)
    def configure(self, forms: list[Any]) -> None:
        self.wanted = offers(*forms)

    @rule(
        looks=st.sampled_from([True, True, True, False]),
        cut_off=st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3]),
        dies=st.booleans(),
        wiped=st.sampled_from([False, False, False, False, True]),
        late=st.none() | st.randoms(use_true_random=False),
    )
    def sync(self, looks: bool, cut_off: int, late: Any, *, dies: bool = True, wiped: bool = False) -> None:
        """The controller does a step; perhaps a write fails, or it dies before it has written every slice.

        Between its look at the claims and its writes the scheduler goes on, and a kubelet may delete what the
        controller is about to write: the API server finds nothing to replace then.
        """
        self.can_list = looks
        held = frozenset(self.prepared)
        gpus = mig_node.inventory().gpus
        devices = with_blocked(self.wanted.devices, NodeState(tuple(sorted(held))), gpus)
        seen = Seen(replace(self.wanted, devices=devices), held, self.stored, gpus, self.foreign)
        self.foreign = frozenset()
        self.remembered = self.changeover.step(self.remembered, seen)
        if late is not None:
            self.allocate(late)
        if wiped and self.stored:
            self.wipe()
            return
        generation = max((item["spec"]["pool"]["generation"] for item in self.stored), default=0) + 1
        new = slices(self.remembered.offers, generation)
        written = {device["name"] for item in new for device in item["spec"].get("devices", [])}
        self.other["foreign"] |= written
        assert {one.name for one in published(self.stored, POOL)[0]} & self.taken.keys() <= written
        self.stored = new if cut_off == 0 else new[:-cut_off] + self.stored[len(new[:-cut_off]) :]
        if cut_off and dies:
            self.begin()

    @rule(choice=st.randoms(use_true_random=False), forms=st.none() | CONFIGURED)
    def settle(self, choice: Any, forms: list[Any] | None = None) -> None:
        """Nothing goes wrong for a while, and pods come: they may have all but the places of claims.

        Before that a kubelet may have deleted all slices, while something else was configured.
        """
        if forms is not None:
            self.configure(forms)
            self.wipe()
        for _ in range(3):
            self.sync(looks=True, cut_off=0, late=None)
        wanted = {device.name: device.regions for device in self.wanted.devices}
        kept = [DEVICES[name].regions for name in self.taken if name not in wanted]
        free = {name for name, of in wanted.items() if not any(overlap(of, one) for one in kept)}
        assert {device.name for device in published(self.stored, POOL)[0] if not device.taints} == free
        for _ in range(3):
            self.allocate(choice)

    @rule(forms=CONFIGURED, choice=st.randoms(use_true_random=False))
    def change_while_pods_come(self, forms: list[Any], choice: Any) -> None:
        """All pods have ended; others come while the controller changes what the node offers."""
        self.taken.clear()
        self.prepared.clear()
        self.configure(forms)
        for _ in range(3):
            self.sync(looks=True, cut_off=0, late=choice)
            self.allocate(choice)

    @rule()
    def end_all(self) -> None:
        """All pods have ended, and soon nothing is published but what is wanted."""
        self.taken.clear()
        self.prepared.clear()
        for _ in range(3):
            self.sync(looks=True, cut_off=0, late=None)
        devices, counters = published(self.stored, POOL)
        assert [(one.name, one.taints) for one in devices] == [(one.name, ()) for one in self.wanted.devices]
        assert counters == self.wanted.counter_sets

    @rule(choice=st.randoms(use_true_random=False))
    def allocate(self, choice: Any) -> None:
        free = self._free()
        if free:
            device = choice.choice(free)
            self.taken[device.name] = Taken(device, DEVICES[device.name].span)

    @precondition(lambda self: self.taken)
    @rule(choice=st.randoms(use_true_random=False))
    def prepare(self, choice: Any) -> None:
        self.prepared.add(choice.choice(sorted(self.taken)))

    @precondition(lambda self: self.taken)
    @rule(choice=st.randoms(use_true_random=False))
    def end_claim(self, choice: Any) -> None:
        name = choice.choice(sorted(self.taken))
        del self.taken[name]
        self.prepared.discard(name)

    @rule()
    def wipe(self) -> None:
        """A kubelet that starts deletes all slices."""
        self.stored = []

    @precondition(lambda self: self.stored)
    @rule(choice=st.randoms(use_true_random=False))
    def lose_a_slice(self, choice: Any) -> None:
        """A kubelet that starts is ended after it deleted some of them, or an admin deletes one."""
        self.stored.remove(choice.choice(self.stored))

    @rule(forms=CONFIGURED)
    def reboot(self, forms: list[Any]) -> None:
        """The machine starts anew, perhaps with another configuration; nothing is prepared any more."""
        self.configure(forms)
        self.prepared.clear()
        self.wipe()
        self.begin()
        self.take_turns()
        self.begin()

    @invariant()
    def no_place_belongs_to_two_claims(self) -> None:
        for one, other in combinations(self.taken.values(), 2):
            apart = one.device.pci != other.device.pci or (
                one.span is not None and other.span is not None and not one.span.overlaps(other.span)
            )
            assert apart, (one.device.name, other.device.name)

    def _allocated(self) -> frozenset[str]:
        if not self.can_list:
            raise ApiError("not now")
        return frozenset(self.taken)

    def _free(self) -> list[Device]:
        """What a scheduler may give to a claim: of a pool that is complete."""
        pools = {
            (item["spec"]["pool"]["generation"], item["spec"]["pool"]["resourceSliceCount"])
            for item in self.stored
        }
        if {count for _, count in pools} != {len(self.stored)} or len(pools) != 1:
            return []
        devices, counters = published(self.stored, POOL)
        left = {one.name: dict(one.counters) for one in counters}
        for device in devices:
            if device.name in self.taken:
                for name, amount in device.consumes.items():
                    left[device.counter_set][name] -= amount
        return [
            device
            for device in devices
            if not device.taints
            and device.name not in self.taken
            and all(left[device.counter_set][name] >= much for name, much in device.consumes.items())
        ]


# Without shrinking: it takes minutes, and the steps that are printed can be followed as they are.
Node.TestCase.settings = settings(
    max_examples=all_examples(150),
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),
)
TestNode = Node.TestCase


def test_the_scheduler_of_these_tests_hands_something_out_of_every_form() -> None:
    for form in (WHOLE, DYNAMIC, BALANCED):
        node = Node()
        node.stored = slices(offers(form))
        assert len(node._free()) == len(offers(form).devices)  # noqa: SLF001 - the model under test


class Last:
    """Chooses the last of the devices, a whole GPU where there is one."""

    def choice(self, items: list[Any]) -> Any:
        return items[-1]


def test_a_claim_that_comes_between_the_look_and_the_write_shares_with_nobody() -> None:
    node = Node()
    node.configure([DYNAMIC])
    node.sync(looks=True, cut_off=0, late=None)
    node.configure([BALANCED])
    for _ in range(3):
        node.sync(looks=True, cut_off=0, late=Last())
    for _ in range(8):
        node.allocate(Last())

    node.no_place_belongs_to_two_claims()
    assert "gpu-0000-1b-00-0" in node.taken
