"""Each kind that is offered can be prepared: both halves say the same word."""

from pathlib import Path

from driver.kinds.registry import KINDS
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import HELD_KINDS, HeldDevice
from tests.toy_kind.held import HeldToy

MACHINE = "a30-quad"


def held(device: str, kind: str) -> HeldDevice:
    return HeldDevice("gpu", "pool", device, "", "", "cdi", kind=kind)


def test_every_kind_that_is_offered_has_a_half_on_the_node_and_the_other_way_round(node: FakeNode) -> None:
    assert [one.offered for one in node.kinds] == list(KINDS)


def test_the_halves_find_each_other_by_the_word(node: FakeNode) -> None:
    for kind in node.kinds:
        assert node.kinds.of(held("anything", kind.offered.word)) is kind


def test_a_kind_from_elsewhere_is_one_more_beside_the_drivers_own(tmp_path: Path) -> None:
    before = [kind.word for kind in KINDS]
    with HELD_KINDS.added(HeldToy):
        node = FakeNode(tmp_path)
        toy = held("toy-0", "toy").offered

    assert [one.offered.word for one in node.kinds] == [*before, "toy"]
    assert (toy, held("toy-0", "toy").offered) == (HeldToy.offered, None), "both halves, within the block"
    node.stop()


def test_a_node_that_does_not_know_a_kind_keeps_what_its_claims_hold(node: FakeNode) -> None:
    unknown = node.kinds.of(held("toy-0", "toy"))

    assert unknown not in list(node.kinds)
    assert unknown.is_made(held("toy-0", "toy"))
