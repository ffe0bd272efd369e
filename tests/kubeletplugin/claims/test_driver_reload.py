"""The NVIDIA driver was loaded anew within a boot: nothing that was made on the hardware is there."""

from collections.abc import Callable

import pytest

from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import class_slicing
from tests.kubeletplugin.shown_node import ONE


@pytest.fixture
def reload(node: FakeNode) -> Callable[[], None]:
    """Loads the driver anew: the hardware forgets what was set, the plugin runs on."""
    node.driver_generation = "41"

    def loaded() -> None:
        node.machine.reboot()
        node.mps.running.clear()
        node.driver_generation = str(int(node.driver_generation) + 1)

    return loaded


def test_a_partition_is_made_anew_when_the_kubelet_asks_again(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    ref = node.claim_devices("train", node.partition(0, "1g.10gb", 6))
    node.prepare(ref)
    reload()
    assert node.instances() == ()

    node.prepare(ref)

    assert len(node.instances()) == 1
    (made,) = node.handle().mig_devices()
    assert node.partition_uuid(ref) == made.uuid
    node.unprepare(ref)
    assert node.instances() == ()


def test_what_somebody_else_made_after_the_reload_is_left_alone(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    """It lies where the claim's partition lay, with the same profile and the same id."""
    ref = node.claim_devices("train", node.partition(0, "1g.10gb", 6))
    node.prepare(ref)
    reload()
    theirs = node.cut_by_hand(ONE, 6, 1)

    node.unprepare(ref)

    assert node.instances() == (theirs,)
    assert not node.entry(ref).holds


def test_a_share_is_set_up_anew_when_the_kubelet_asks_again(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    served = node.claim_shares("served", node.shared("mps-4"))
    sliced = node.claim_shares("sliced", node.shared("ts-4", 1), config=class_slicing("Long"))
    for ref in (served, sliced):
        node.prepare(ref)
    reload()
    assert (node.compute_mode(), node.interval(1)) == ("default", "Default")

    for ref in (served, sliced):
        node.prepare(ref)

    assert (node.compute_mode(), node.interval(1)) == ("exclusive-process", "Long")
    for ref in (served, sliced):
        node.unprepare(ref)
    node.assert_as_before()
