"""The driver is taken away only while no claim has a device, and serves as before when that is refused."""

import pytest

from controller.uninstall.steps import Refused
from tests.controller.uninstall.played_cluster import PlayedCluster

BOTH = ["gpu-dra-controller", "gpu-dra-kubeletplugin"]


def test_slices_plugins_and_what_is_on_the_nodes_go_and_slices_of_others_stay(played: PlayedCluster) -> None:
    played.publish("nic", "node-a", driver="nic.example.com")

    assert played.uninstall() == ()

    assert played.slices() == ["nic"]
    assert played.pods() == []
    assert played.sets() == []
    assert set(played.cleaned) == {"node-a", "node-b"}


def test_a_claim_with_a_device_keeps_everything_as_it_is_and_its_pods_are_named(
    played: PlayedCluster,
) -> None:
    played.allocate("shared", "train-0", "train-1")
    played.allocate("foreign", "other", driver="nic.example.com")

    with pytest.raises(Refused, match=r"pod team/train-0, team/train-1 on node-a: ") as refused:
        played.uninstall()

    assert "other" not in str(refused.value)
    assert played.sets() == BOTH
    assert len(played.slices()) == 2


def test_an_allocation_that_was_on_its_way_has_the_driver_serve_again(played: PlayedCluster) -> None:
    played.once(lambda: not played.slices(), lambda: played.allocate("late", "train"))
    with pytest.raises(Refused, match="team/train"):
        played.uninstall()
    played.play(0.0)

    assert played.sets() == BOTH
    assert len(played.slices()) == 2
    assert played.cleaned == []


def test_a_node_that_cannot_be_cleaned_is_named_and_the_driver_serves_again(played: PlayedCluster) -> None:
    played.refusing["node-b"] = "this node still holds devices for team/one"

    with pytest.raises(Refused, match=r"node-b: Error: this node still holds devices for team/one"):
        played.uninstall()
    played.play(0.0)

    assert played.sets() == BOTH
    assert len(played.slices()) == len(played.pods("gpu-dra-kubeletplugin")) == 2


def test_a_node_that_is_down_is_not_waited_for_but_named(played: PlayedCluster) -> None:
    played.go_down("node-b")

    assert played.uninstall() == ("node-b",)
    assert set(played.cleaned) == {"node-a"}
    assert "slice-node-a" not in played.slices()


def test_a_node_that_goes_down_while_it_is_cleaned_is_named(played: PlayedCluster) -> None:
    played.slow.add("node-b")
    played.once(lambda: len(played.pods("gpu-dra-retire")) == 2, lambda: played.go_down("node-b"))

    assert played.uninstall() == ("node-b",)


def test_a_node_that_takes_too_long_is_named(played: PlayedCluster) -> None:
    played.slow.add("node-b")

    played.nodes_seconds = 0.2
    with pytest.raises(Refused, match=r"1 nodes were not cleaned within 0 s, among them node-b"):
        played.uninstall()
    assert played.sets() == BOTH


def test_slices_that_somebody_else_publishes_are_named(played: PlayedCluster) -> None:
    def publishes() -> None:
        played.rounds.append(publishes)
        if not played.slices():
            played.publish("again", "node-a")

    played.rounds.append(publishes)
    with pytest.raises(Refused, match="ResourceSlices reappear for the nodes node-a"):
        played.uninstall()
