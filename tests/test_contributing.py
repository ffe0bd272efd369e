"""CONTRIBUTING.md leads to places that exist."""

import re
from pathlib import Path

from tests.test_layers import table

ROOT = Path(__file__).resolve().parents[1]
HEADING = "## Where is what changed"
MOST_ROWS = 15
MOST_ROOMS = 25


def rows() -> list[list[str]]:
    """The rows of the table below the heading, as cells."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index(HEADING) :].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_path_of_the_table_exists() -> None:
    paths = [path for row in rows() for path in re.findall(r"`([^`]+)`", " ".join(row)) if "/" in path]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_tables_can_be_read_at_a_glance() -> None:
    rooms = table((ROOT / "docs/architecture.md").read_text(), "folder")
    assert 0 < len(rows()) <= MOST_ROWS
    assert 0 < len(rooms) <= MOST_ROOMS


def test_every_row_says_where_its_code_and_its_tests_are() -> None:
    assert [what for what, code, tests, _ in rows() if "/" not in code or "/" not in tests] == []


def test_every_file_of_the_core_on_real_kubernetes_exists() -> None:
    files = (ROOT / "tests/cluster/core.txt").read_text().split()
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []
