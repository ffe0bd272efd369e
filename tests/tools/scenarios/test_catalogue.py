"""Scenarios are folders, and pages of the documentation that name one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.catalogue import scenario, scenario_names
from tools.scenarios.page import ScenarioWrong


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("b", "a", "no-description"):
        folder = tmp_path / "deploy" / "scenarios" / name
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("# A\n")
        if name != "no-description":
            (folder / "scenario.yaml").write_text("version: v1\nnodes: []\n")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tutorial.md").write_text("---\nscenario: deploy/scenarios/a/scenario.yaml\n---\n# B\n")
    (docs / "other.md").write_text("---\ntitle: x\n---\n# B\n")
    (docs / "plain.md").write_text("# B\n")
    return tmp_path


def test_folders_come_first_by_name_then_pages(checkout: Path) -> None:
    names = scenario_names(checkout)
    found = [scenario(name, checkout) for name in names]
    assert names == [one.name for one in found] == ["a", "b", "docs/tutorial"]
    assert [one.is_folder for one in found] == [True, True, False]
    assert found[2].folder == found[0].folder


def test_one_that_is_wrong_does_no_harm_to_others(checkout: Path) -> None:
    (checkout / "deploy" / "scenarios" / "a" / "scenario.yaml").write_text("wrong")
    assert scenario("b", checkout).name == "b"
    with pytest.raises(ScenarioWrong, match="has to be a mapping"):
        scenario("docs/tutorial", checkout)


def test_a_name_that_there_is_not_is_told_with_those_that_there_are(checkout: Path) -> None:
    with pytest.raises(ScenarioWrong, match="no scenario 'c'") as raised:
        scenario("c", checkout)
    assert raised.value.way_out == "name one of a, b, docs/tutorial"


def test_a_page_that_names_a_file_that_is_not_there_is_told(checkout: Path) -> None:
    (checkout / "docs" / "other.md").write_text("---\nscenario: none.yaml\n---\n")
    with pytest.raises(ScenarioWrong, match=r"none\.yaml cannot be read"):
        scenario("docs/other", checkout)
