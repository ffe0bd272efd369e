"""Every test finds the devices with the drivers that they had, and has to leave them so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.process.log import configure
from tests.guest.inside.devices import MODULES, OWN_DRIVERS, Journal, state


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: a guest that hangs later says nothing at its end."""
    if report.failed:
        sys.__stdout__.write(f"\n{report.longreprtext}\n")  # type: ignore[union-attr] # it is there
        sys.__stdout__.flush()  # type: ignore[union-attr] # likewise


@pytest.fixture(scope="session", autouse=True)
def _drivers() -> None:
    """Load the drivers of the devices: nothing in the guest does so by itself."""
    configure("info", sys.stderr)
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
