"""deploy/scenarios/README.md has every scenario and kind and where it runs; docs/testing.md what they use."""

import re

from click.testing import CliRunner

from driver.kinds.registry import KINDS
from tests.clusters import PACKAGE_ROOT
from tools.scenarios.__main__ import commands
from tools.scenarios.catalogue import scenario, scenario_names
from tools.scenarios.description import CLUSTERS
from tools.scenarios.places.needs import NEEDS
from tools.scenarios.places.place import PROGRAMS

PAGE = (PACKAGE_ROOT / "deploy" / "scenarios" / "README.md").read_text()
TESTING = (PACKAGE_ROOT / "docs" / "testing.md").read_text()
STATUSES = ("both", "embedded", "real", "page", "not done: ")
# The rows of tables that end with a status.
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for table in re.findall(r"^\|.*\| status \|\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    for line in table.splitlines()
]


def linked(row: list[str]) -> set[str]:
    """The scenarios that a row leads to."""
    return set(re.findall(r"\]\(([a-z0-9-]+)/README\.md", " ".join(row)))


def test_every_scenario_and_every_kind_is_in_it() -> None:
    folders = {name for name in scenario_names() if not name.startswith("docs/")}

    assert {name for row in ROWS for name in linked(row)} == folders
    named = {code for row in ROWS if linked(row) for code in re.findall(r"\(`([a-z-]+)`\)", row[0])}
    assert {kind.word for kind in KINDS} - named == set()


def test_every_status_is_one_that_is_explained_and_true() -> None:
    for row in ROWS:
        assert row[-1].startswith(STATUSES), row
        for name in linked(row) if row[-1] in ("both", "embedded", "real") else ():
            said = CLUSTERS if row[-1] == "both" else (row[-1],)
            assert scenario(name).description.clusters == said, name


def test_every_need_and_every_program_of_scenarios_is_told() -> None:
    programs = [name for name in PROGRAMS if name.startswith("scenario-")]
    told = [*(f"`{need}`" for need in NEEDS), *(f"| `{program} " for program in programs)]
    assert [one for one in told if one not in TESTING] == []


def test_a_cluster_on_which_it_does_not_run_is_not_kept() -> None:
    told = CliRunner().invoke(commands, ["keep", "docs/tiers-and-quotas"])

    assert (told.exit_code, "enforces no admission policies" in told.output) == (2, True)
