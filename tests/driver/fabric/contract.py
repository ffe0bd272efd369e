"""What every fabric manager must do, whoever implements it: each function is one clause.

It is called with a scene of the eight GPUs and fifteen partitions of ``hgx-h100-shared-nvswitch``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from driver.fabric.api import AlreadyActive, FabricCode, FabricManager, NotActive
from tests.gpus import FabricError, NoFabricManager


@dataclass(frozen=True, slots=True)
class Scene:
    """A fabric manager, and what starts and stops it. One that was started anew waits if it is to keep."""

    manager: FabricManager
    stop: Callable[[], None]
    start: Callable[[bool], None]


def active(scene: Scene) -> list[int]:
    return [one.number for one in scene.manager.partitions() if one.active]


def lists_its_partitions_in_order(scene: Scene) -> None:
    found = scene.manager.partitions()
    assert [one.number for one in found] == list(range(15))
    assert [len(one.gpus) for one in found] == [8, 4, 4, 2, 2, 2, 2, *[1] * 8]
    assert found[0].physical_ids == set(range(1, 9))
    assert found[4].physical_ids == {3, 4}
    assert active(scene) == []


def activates_partitions_side_by_side(scene: Scene) -> None:
    for number in (3, 2, 10):
        scene.manager.activate(number)
    assert active(scene) == [2, 3, 10]


def refuses_what_shares_a_gpu_with_an_active_one(scene: Scene) -> None:
    scene.manager.activate(1)
    for number in (0, 1, 3, 7):
        with pytest.raises(AlreadyActive) as caught:
            scene.manager.activate(number)
        assert f"fmActivateFabricPartition of partition {number}" in caught.value.what
    assert active(scene) == [1]


def lets_a_partition_go_once(scene: Scene) -> None:
    scene.manager.activate(0)
    scene.manager.deactivate(0)
    assert active(scene) == []
    with pytest.raises(NotActive):
        scene.manager.deactivate(0)
    scene.manager.activate(5)


def knows_no_partition_that_it_has_not_listed(scene: Scene) -> None:
    for call in (scene.manager.activate, scene.manager.deactivate):
        with pytest.raises(FabricError) as caught:
            call(63)
        assert caught.value.code == FabricCode.BADPARAM


def is_told_from_the_one_before(scene: Scene) -> None:
    first = scene.manager.instance()
    assert first is not None
    assert scene.manager.instance() == first
    scene.stop()
    assert scene.manager.instance() is None
    with pytest.raises(NoFabricManager) as caught:
        scene.manager.partitions()
    assert caught.value.retryable
    scene.start(False)
    assert scene.manager.instance() not in (None, first)


def waits_to_be_told_after_a_restart(scene: Scene) -> None:
    scene.manager.activate(2)
    scene.manager.activate(3)
    scene.stop()
    scene.start(True)
    assert active(scene) == []
    for call in (scene.manager.activate, scene.manager.deactivate):
        with pytest.raises(FabricError) as caught:
            call(2)
        assert caught.value.code == FabricCode.NOT_CONFIGURED
    scene.manager.set_activated((2, 3))
    assert active(scene) == [2, 3]
    scene.manager.deactivate(2)
    scene.manager.activate(5)
    assert active(scene) == [3, 5]


def is_told_nothing_as_well(scene: Scene) -> None:
    scene.stop()
    scene.start(True)
    scene.manager.set_activated(())
    scene.manager.activate(0)
    assert active(scene) == [0]


def takes_no_list_when_it_does_not_wait(scene: Scene) -> None:
    scene.manager.activate(3)
    with pytest.raises(FabricError):
        scene.manager.set_activated((2,))
    assert active(scene) == [3]


CLAUSES: tuple[Callable[[Scene], None], ...] = (
    lists_its_partitions_in_order,
    activates_partitions_side_by_side,
    refuses_what_shares_a_gpu_with_an_active_one,
    lets_a_partition_go_once,
    knows_no_partition_that_it_has_not_listed,
    is_told_from_the_one_before,
    waits_to_be_told_after_a_restart,
    is_told_nothing_as_well,
    takes_no_list_when_it_does_not_wait,
)
