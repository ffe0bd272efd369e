"""A host without a driver for each test."""

from pathlib import Path

import pytest

from tests.gpus import DriverRoots


@pytest.fixture
def roots(tmp_path: Path) -> DriverRoots:
    """The roots of the host."""
    return DriverRoots.probed(tmp_path, tmp_path / "sys")
