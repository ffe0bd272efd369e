"""What the fabric manager has told counts while it is away; one that never told leaves it open."""

from driver.fabric.seen import NO_FABRIC, FabricView, KnownFabric
from tests.gpus import FakeMachine

MACHINE = "hgx-h100-shared-nvswitch"


def test_the_partitions_are_asked_for_once() -> None:
    fabric = FakeMachine.open(MACHINE).fabric
    seen = KnownFabric(fabric.manager())
    told = seen.current()
    assert len(told.partitions) == 15
    fabric.fail("partitions")
    assert seen.current() == told
    fabric.stop()
    assert seen.current() == told


def test_a_fabric_manager_that_never_told_leaves_it_open() -> None:
    fabric = FakeMachine.open(MACHINE).fabric
    fabric.fail("partitions", -8)
    seen = KnownFabric(fabric.manager())
    assert seen.current() == FabricView(unanswered=True)
    fabric.heal()
    assert len(seen.current().partitions) == 15


def test_a_node_without_a_shared_fabric_is_asked_once() -> None:
    fabric = FakeMachine.open("hgx-h100").fabric
    seen = KnownFabric(fabric.manager())
    assert seen.current() == NO_FABRIC
    fabric.fail("partitions")
    assert seen.current() == NO_FABRIC
    fabric.start()
    assert seen.current() == NO_FABRIC, "what was told before counts on"
    fabric.stop()
    assert KnownFabric(fabric.manager()).current() == NO_FABRIC
