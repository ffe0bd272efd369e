"""What the tests in the guest have in common: a word at once, and a log."""

import sys

import pytest

from driver.process.log import configure


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: a guest that hangs later says nothing at its end."""
    if report.failed:
        sys.__stdout__.write(f"\n{report.longreprtext}\n")  # type: ignore[union-attr] # it is there
        sys.__stdout__.flush()  # type: ignore[union-attr] # likewise


@pytest.fixture(scope="session", autouse=True)
def _log() -> None:
    configure("info", sys.stderr)
