"""The fake driver root: containers find device nodes, libraries and an nvidia-smi that notes its calls."""

import os
import stat
from pathlib import Path

import pytest

from fakegpu.driver_files.driver_root import CONTROL_NODES
from tests.gpus import FakeMachine, build_driver_root


@pytest.fixture
def machine() -> FakeMachine:
    """Eight GPUs whose minors do not follow the bus."""
    return FakeMachine.open("l40s-octo")


def test_every_node_is_there_and_is_a_character_device(tmp_path: Path, machine: FakeMachine) -> None:
    root = build_driver_root(tmp_path, machine)
    names = {*CONTROL_NODES, *(f"nvidia{minor}" for minor in range(8))}
    assert {path.name for path in (root / "dev").iterdir()} == names | {"dri"}
    nodes = [root / "dev" / name for name in names]
    nodes += [path for path in (root / "dev" / "dri").iterdir() if path.name != "by-path"]
    assert len(nodes) == len(names) + 16
    for node in nodes:
        status = node.stat()
        assert stat.S_ISCHR(status.st_mode)
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (1, 3)
