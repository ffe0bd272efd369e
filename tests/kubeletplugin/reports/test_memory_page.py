"""The page on shared GPUs lists the series that there are, with their labels."""

from __future__ import annotations

import re
from pathlib import Path

from driver.process.metrics.table import TABLE
from kubeletplugin.reports.memory_watch import MEMORY_SERIES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sharing.md").read_text()


def labels() -> dict[str, set[str]]:
    """The labels of each series of which the page may speak."""
    return {
        one.name: set(one.labels)
        for one in TABLE.rows
        if one.name in MEMORY_SERIES
        or one.name in ("gpu_dra_gpu_memory_allocated_bytes", "gpu_dra_gpu_memory_used_bytes")
    }


def test_the_page_lists_the_series_with_their_labels() -> None:
    rows = re.findall(r"^\| `(gpu_dra_[a-z_]+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    told: dict[str, set[str]] = {}
    before: set[str] = set()
    for name, words in rows:
        own = set(re.findall(r"`([a-z_]+)`", words))
        before = before | own if words.startswith("the same") else own
        told[name] = before

    assert told == labels()
