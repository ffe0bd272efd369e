"""A process of a former version imports its own packages, else today is compared with itself."""

from __future__ import annotations

from pathlib import Path

from envtest.client.shipped import python_environment


def test_its_packages_come_before_those_of_the_callers_environment(tmp_path: Path) -> None:
    assert python_environment(tmp_path, {"PYTHONPATH": "/other"}) == {"PYTHONPATH": f"{tmp_path}:/other"}
    assert python_environment(tmp_path, {}) == {"PYTHONPATH": str(tmp_path)}
