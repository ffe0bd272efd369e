"""docs/decisions.md has the limits that the benchmark holds."""

from pathlib import Path

from tools.bench.__main__ import CALLS, FLOOR_LIMITS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "decisions.md").read_text()


def test_the_limits_on_the_page_are_those_of_the_benchmark() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines()]
    shown = {row[0]: row[2] for row in rows if len(row) == 4 and row[0] in CALLS.values()}

    assert shown == {CALLS[call]: f"{limit:g}" for call, limit in FLOOR_LIMITS.items()}
