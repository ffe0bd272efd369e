"""docs/doctor.md lists the checks as the code has them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpuctl.doctor.check import Check
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.outside.checks import OUTSIDE
from gpuctl.gather.archive import MOST_BYTES, MOST_MEMBER_BYTES
from gpuctl.gather.cluster_files import LINES, MOST_PODS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "doctor.md").read_text()


def table(checks: Iterable[Check[Any]]) -> str:
    """The table of some checks, as it stands on the page."""
    rows = [f"| `{one.name}` | {one.looks_at} | {one.fails_when} |" for one in checks]
    return "\n".join(("| check | looks at | fails when |", "|---|---|---|", *rows, ""))


@pytest.mark.parametrize("checks", [OUTSIDE, INSIDE], ids=["outside", "inside"])
def test_the_page_has_the_table_of_the_checks(checks: tuple[Check[Any], ...]) -> None:
    assert table(checks) in PAGE


def test_no_two_checks_have_one_name() -> None:
    names = [*(one.name for one in OUTSIDE), *(one.name for one in INSIDE)]

    assert len(set(names)) == len(names)


def test_the_bounds_of_a_report_are_as_the_page_says() -> None:
    assert f"It holds {MOST_BYTES >> 20} MiB at most" in PAGE
    assert f"{MOST_MEMBER_BYTES >> 20} MiB a file, and logs of {MOST_PODS} pods" in PAGE
    assert f"the last {LINES}" in PAGE
