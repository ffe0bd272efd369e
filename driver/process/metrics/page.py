"""Writes the tables of docs/metrics.md from the table of series, or checks them.

``python -m driver.process.metrics.page`` writes them between two marks of the page. With ``--check`` it exits
with 1 if they are stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from driver.process.metrics.table import TABLE, Process, Series

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
BEGIN = "<!-- Made from driver/process/metrics/ by python -m driver.process.metrics.page: -->\n"
END = "<!-- until here -->\n"

_TITLES: dict[Process, str] = {
    "kubeletplugin": "Kubelet plugin (port 9402)",
    "controller": "Controller (port 9401)",
    "webhook": "Webhook (port 9400)",
}
_HEAD = "| series | type | says | labels | unit | how many |\n|---|---|---|---|---|---|\n"


def tables() -> str:
    """The tables of all series, one for each process."""
    return "\n".join(f"### {title}\n{_HEAD}{_rows(TABLE.of(process))}" for process, title in _TITLES.items())


def with_tables(page: str) -> str:
    """The page with the tables between its marks; raises ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no marks for the tables")
    return f"{before}{begin}\n{tables()}\n{end}{after}"


def _rows(series: Iterable[Series]) -> str:
    return "".join(
        f"| `{one.name}` | {one.kind} | {one.help} | {_labels(one)} | {one.unit} | {one.bound} |\n"
        for one in series
    )


def _labels(series: Series) -> str:
    return ", ".join(f"`{name}`" for name in series.labels)


def main() -> int:
    """Write or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the tables of docs/metrics.md.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is stale")
    checks = parser.parse_args().check
    page = PAGE.read_text()
    wanted = with_tables(page)
    if page == wanted:
        return 0
    if checks:
        sys.stderr.write("docs/metrics.md is stale: run python -m driver.process.metrics.page\n")
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
