"""Every test finds the devices with the drivers that they had, and has to leave them so."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.inside.vfio.devices import MODULES, OWN_DRIVERS, Journal, state


@pytest.fixture(scope="session", autouse=True)
def _drivers() -> None:
    """Load the drivers of the devices: nothing in the guest does so by itself."""
    for module in MODULES:
        subprocess.run(["modprobe", module], check=True)
    assert {address: driver for address, (driver, _) in state().items()} == OWN_DRIVERS


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Have each test leave what it found."""
    before = state()
    yield
    assert state() == before


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "record")


@pytest.fixture(scope="session")
def release() -> str:
    return os.uname().release
