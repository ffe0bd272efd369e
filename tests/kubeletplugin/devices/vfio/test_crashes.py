"""The process ends at any write of a bind or a restore, and the next one goes on or undoes."""

from pathlib import Path

import pytest

from tests.kubeletplugin.devices.vfio.group_scene import BOUND, CLEAN, OWN_DRIVERS, GroupScene, Killed

WRITES_OF_BIND, WRITES_OF_BOTH = 9, 21


@pytest.mark.parametrize("dies", ["dies_at", "dies_after"])
@pytest.mark.parametrize("write", range(1, WRITES_OF_BOTH + 1))
@pytest.mark.parametrize("then", ["restore", "bind"])
def test_the_end_of_the_process_at_any_write_of_bind_and_of_restore(
    tmp_path: Path, dies: str, write: int, then: str
) -> None:
    scene = GroupScene(tmp_path)
    if write > WRITES_OF_BIND:
        scene.bind()
        assert scene.kernel.writes == WRITES_OF_BIND
    setattr(scene.kernel, dies, write)
    with pytest.raises(Killed):
        scene.bind() if write <= WRITES_OF_BIND else scene.restore()
    scene.kernel.dies_at = scene.kernel.dies_after = None
    if then == "bind":
        scene.bind()
        assert scene.drivers() == BOUND
    scene.restore()

    assert write <= WRITES_OF_BIND or scene.kernel.writes >= WRITES_OF_BOTH
    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)
