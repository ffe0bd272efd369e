"""docs/troubleshooting.md says how large a report gets, and no two checks of the doctor have one name."""

from __future__ import annotations

from pathlib import Path

from gpuctl.gather.archive import MOST_BYTES, MOST_MEMBER_BYTES
from gpuctl.gather.cluster_files import LINES, MOST_PODS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md").read_text()


def test_the_bounds_of_a_report_are_as_the_page_says() -> None:
    assert f"at most {MOST_BYTES >> 20} MiB before compression" in PAGE
    assert f"{MOST_MEMBER_BYTES >> 20} MiB per file, and logs of {MOST_PODS} pods" in PAGE
    assert f"the last {LINES}" in PAGE
