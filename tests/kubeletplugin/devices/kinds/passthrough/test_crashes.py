"""The process may end after any call of the kernel and after any step: the next one goes on, or undoes it.

What it leaves before a call is what it leaves after the call or step in front of it.
"""

from pathlib import Path

import pytest

from tests.kubeletplugin.devices.kinds.passthrough.world import World
from tests.kubeletplugin.fake_node import Crash

BESIDE, TOGETHER = (1,), (2, 3)
"""A GPU with functions beside it, and two GPUs in one group."""


def _ends(world: World, gpus: tuple[int, ...], operation: str, where: str, number: int) -> bool:
    """Begin an operation that ends at the n-th call, or after the n-th step; whether it came so far."""
    world.claims[:] = [ref := world.vm("vm", *gpus)]
    if operation == "unprepare":
        world.prepare(ref)
    if where == "step":
        world.die_at_step(number)
    else:
        world.die_at_call(number, after=True)
    try:
        if operation == "prepare":
            world.prepare(ref)
        else:
            assert world.unprepare(ref) is None
    except Crash:
        assert world.unexplained() == []
        world.end_process()
        assert world.unexplained() == []
        return True
    return False


@pytest.mark.parametrize(
    ("gpus", "then"),
    [
        (BESIDE, "unprepare"),
        (TOGETHER, "prepare"),
        (TOGETHER, "boot"),
        (TOGETHER, "finish and look for claims that are gone"),
    ],
)
@pytest.mark.parametrize("where", ["call", "step"])
@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_nothing_is_left_after_an_end_at_any_point(
    tmp_path: Path, gpus: tuple[int, ...], operation: str, where: str, then: str
) -> None:
    world = World(tmp_path)
    ends = 0
    while _ends(world, gpus, operation, where, ends):
        _go_on(world, then)
        ends += 1
    world.stop()
    assert ends >= 6, "each function takes several calls and steps"


def _go_on(world: World, then: str) -> None:
    (ref,) = world.claims
    if then == "boot":
        world.boot()
    if then == "finish and look for claims that are gone":
        del world.api[ref.namespace, ref.name]
        world.reconciler.finish_releases()
        world.reconciler.run_once()
    elif then != "unprepare":
        assert len(world.prepare(ref)) == 1
        assert world.spec_path(ref).exists()
        assert world.unexplained() == world.not_as_prepared() == []
    if then != "finish and look for claims that are gone":
        assert world.unprepare(ref) is None
    assert world.changed() == {}
    assert world.unexplained() == []
    assert [entry for entry in world.journal.entries() if entry.holds] == []
    assert list(world.cdi.glob("*.json")) == []
    container = world.claim("container", *range(4))
    world.prepare(container)
    assert world.unprepare(container) is None
