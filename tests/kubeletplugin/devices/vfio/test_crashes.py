"""The process ends at any write of a bind or a restore, and the next one goes on or undoes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubeletplugin.devices.vfio.group_scene import BOUND, CLEAN, OWN_DRIVERS, GroupScene, Killed


@pytest.mark.parametrize("dies", ["dies_at", "dies_after"])
@pytest.mark.parametrize("write", range(1, 10))
@pytest.mark.parametrize("then", ["restore", "bind"])
def test_the_end_of_the_process_at_any_write_of_bind(
    tmp_path: Path, dies: str, write: int, then: str
) -> None:
    scene = GroupScene(tmp_path)
    setattr(scene.kernel, dies, write)
    with pytest.raises(Killed):
        scene.bind()
    _alive(scene)
    if then == "bind":
        scene.bind()
        assert scene.drivers() == BOUND
    scene.restore()

    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)


@pytest.mark.parametrize("dies", ["dies_at", "dies_after"])
@pytest.mark.parametrize("write", range(10, 22))
@pytest.mark.parametrize("then", ["restore", "bind"])
def test_the_end_of_the_process_at_any_write_of_restore(
    tmp_path: Path, dies: str, write: int, then: str
) -> None:
    scene = GroupScene(tmp_path)
    scene.bind()
    assert scene.kernel.writes == 9
    setattr(scene.kernel, dies, write)
    with pytest.raises(Killed):
        scene.restore()
    _alive(scene)
    if then == "bind":
        scene.bind()
        assert scene.drivers() == BOUND
    scene.restore()

    assert scene.kernel.writes >= 21
    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)


def _alive(scene: GroupScene) -> None:
    scene.kernel.dies_at = scene.kernel.dies_after = None
