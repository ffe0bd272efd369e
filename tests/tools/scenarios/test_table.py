"""docs/scenarios.md names every scenario, kind of device and article, and nothing that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from driver.kinds.registry import KINDS
from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.description import CLUSTERS, read_description

PAGE = PACKAGE_ROOT / "docs" / "scenarios.md"
SCENARIOS = PACKAGE_ROOT / "deploy" / "scenarios"
BY_KIND = "By kind of device"
ARTICLES = (
    "How Virtual GPUs Enhance Sharing in Kubernetes for Machine Learning on VMware vSphere (2022)",
    "Can a dedicated GPU be shared by multiple Kubernetes pods? (2025)",
    "AI/ML and GPUs in Kubernetes (2020)",
    "Virtual GPUs and Passthrough GPUs on VMware vSphere \N{EN DASH} Can They be Used Together? (2022)",
    "Advanced GPU Scheduling & Sharing (a module of a course)",
)
STATUSES = ("both", "embedded", "real", "page", "not done: ")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: what is read, what it calls by code names, and where it leads."""

    text: str
    codes: tuple[str, ...]
    links: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row below a heading; the first cell says what, the last one how far."""

    heading: str
    cells: tuple[Cell, ...]

    @property
    def status(self) -> str:
        """What the last cell says."""
        return self.cells[-1].text

    @property
    def scenarios(self) -> set[str]:
        """The scenarios that the row links."""
        return {
            link.parent.name
            for cell in self.cells
            for link in cell.links
            if link.name == "README.md" and link.parent.parent == SCENARIOS
        }


@pytest.fixture(scope="module")
def tokens() -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(PAGE.read_text())


@pytest.fixture(scope="module")
def rows(tokens: list[Token]) -> list[Row]:
    """The rows of all tables but the one that explains the statuses."""
    found: list[Row] = []
    heading, in_head = "", False
    cells: list[Cell] = []
    for index, token in enumerate(tokens):
        match token.type:
            case "heading_open":
                heading = tokens[index + 1].content
            case "thead_open" | "thead_close":
                in_head = token.type == "thead_open"
            case "tr_open":
                cells = []
            case "td_open":
                cells.append(_cell(tokens[index + 1]))
            case "tr_close" if not in_head:
                found.append(Row(heading, tuple(cells)))
    return [row for row in found if len(row.cells) > 2]


def _cell(inline: Token) -> Cell:
    children = inline.children or []
    targets = [str(one.attrGet("href")) for one in children if one.type == "link_open"]
    links = tuple(
        (PAGE.parent / target.partition("#")[0]).resolve() for target in targets if "://" not in target
    )
    return Cell(inline.content, tuple(one.content for one in children if one.type == "code_inline"), links)


def test_every_scenario_is_in_it(rows: list[Row]) -> None:
    linked = {name for row in rows for name in row.scenarios}

    assert linked == {folder.name for folder in SCENARIOS.iterdir() if folder.is_dir()}


def test_every_path_exists(rows: list[Row]) -> None:
    links = {link for row in rows for cell in row.cells for link in cell.links}

    assert sorted(str(link) for link in links if not link.exists()) == []


def test_every_kind_is_in_it_with_a_scenario_and_a_test(rows: list[Row]) -> None:
    by_kind = [row for row in rows if row.heading == BY_KIND]

    named = {code for row in by_kind for code in row.cells[0].codes}
    assert {kind.word for kind in KINDS} <= named
    assert [row.cells[0].text for row in by_kind if not row.scenarios or not row.cells[2].links] == []


def test_every_article_has_a_table_in_their_order(rows: list[Row]) -> None:
    assert list(dict.fromkeys(row.heading for row in rows)) == [BY_KIND, *ARTICLES]


def test_every_status_is_one_that_is_explained_and_true(rows: list[Row]) -> None:
    for row in rows:
        assert row.status.startswith(STATUSES), row.cells[0].text
        for name in row.scenarios if row.status in ("both", "embedded", "real") else ():
            clusters = read_description(SCENARIOS / name / "scenario.yaml").clusters
            said = CLUSTERS if row.status == "both" else (row.status,)
            assert clusters == said, f"{row.cells[0].text}: {name} runs on {clusters}"
