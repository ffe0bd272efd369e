"""Ten thousand random deeds, crashes among them, and nobody ever has more than their claim lets them."""

from pathlib import Path

import pytest

from tests.examples import examples
from tests.kubeletplugin.sharing.memory.hostile_world import HostileWorld

DEEDS = examples(1000)


@pytest.mark.parametrize("seed", range(10))
def test_no_claim_ever_has_more_than_it_may(tmp_path: Path, seed: int) -> None:
    world = HostileWorld(tmp_path, seed)
    world.go(DEEDS)
    assert world.started > DEEDS / 20, "else nothing was tried"
    assert world.denied > DEEDS / 10
    assert world.refused > 0
    assert world.crashed > 0
    world.leave()
