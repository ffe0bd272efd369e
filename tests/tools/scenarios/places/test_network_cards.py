"""A node of GPUs has network cards beside some of them, in a class and a slice that the API server takes."""

from __future__ import annotations

import pytest

from fakegpu.machine.fake_machine import FakeMachine
from kubernetes_rules.validation import errors_of
from tools.scenarios.places.network_cards import cards_beside, objects_of


@pytest.mark.parametrize(
    ("machine", "roots"),
    [("hgx-h100", ["pci0000:3d", "pci0000:bd"]), ("a30-quad", ["pci0000:64"]), ("t4", [])],
)
def test_every_four_gpus_have_a_card_beside_the_second(machine: str, roots: list[str]) -> None:
    cards = cards_beside(FakeMachine.open(machine))

    assert list(cards) == [f"eth{number}" for number in range(len(roots))]
    found = [card["resource.kubernetes.io/pcieRoot"]["string"] for card in cards.values()]
    assert found == roots


def test_what_is_published_is_valid() -> None:
    device_class, cards = objects_of(cards_beside(FakeMachine.open("hgx-h100")), "node-7")

    assert [*errors_of(device_class), *errors_of(cards)] == []
    assert cards["spec"]["nodeName"] == "node-7"
    assert device_class["metadata"]["name"] == cards["spec"]["driver"]
