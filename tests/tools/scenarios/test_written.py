"""Every scenario is written as the others are, and shows the files that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.catalogue import Scenario, scenario, scenario_names
from tools.scenarios.description import Description, Wanted
from tools.scenarios.page import parse_page
from tools.scenarios.written import faults, quotes

GOOD = """# A scenario
![what it does](x.svg)
## Needs
A node.
## Run
`claim.yaml` has
```yaml
name: gpu
```
```sh
kubectl apply -f claim.yaml
```
## What you see
A claim.
## Clean up
```sh
kubectl delete -f claim.yaml
```
"""


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_is_written_as_it_should(name: str) -> None:
    assert faults(scenario(name)) == []


def test_there_are_scenarios() -> None:
    assert "two-pods-one-claim" in scenario_names()


def written(folder: Path, text: str) -> Scenario:
    """A scenario with this page, and one file beside it."""
    (folder / "claim.yaml").write_text("kind: ResourceClaim\nmetadata:\n  name: gpu\n")
    (folder / "scenario.yaml").touch()
    config = folder / "scenario.yaml"
    description = Description(Wanted((), ""), config, ("embedded", "real"), "", long=False)
    return Scenario(folder.name, folder, description, parse_page(folder / "README.md", text))


def test_a_good_one_has_no_faults(tmp_path: Path) -> None:
    assert faults(written(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("![what it does](x.svg)", "", "begins without a picture"),
        ("## Needs", "## Other", "'needs' is missing"),
        ("## Run", "## Other", "'run' is missing"),
        ("## What you see", "## Other", "'what you see' is missing"),
        ("## Clean up", "## The end", "the last section has to be 'Clean up'"),
        ("name: gpu", "name: cpu", "README.md:7: this YAML is in none of the files"),
        ("claim.yaml", "the claim", "does not mention the file claim.yaml"),
        ("```sh", "```console", "it has no sh block"),
    ],
)
def test_each_fault_is_told(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in GOOD
    (told,) = faults(written(tmp_path, GOOD.replace(before, after)))
    assert says in told


def test_what_one_sees_may_stand_between_what_is_run(tmp_path: Path) -> None:
    shown = GOOD.replace("## What you see\nA claim.\n", "```text\nclaim created\n```\n")
    assert faults(written(tmp_path, shown)) == []


def test_a_page_of_the_documentation_has_sections_of_its_own(tmp_path: Path) -> None:
    one = written(tmp_path, GOOD)
    page = parse_page(Path("docs/tutorial.md"), "# Tutorial\n```sh\nls\n```\n")
    assert faults(Scenario("docs/tutorial", one.folder, one.description, page)) == []


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("a: 1\nb:\n  c: 2\n", True),
        ("b:\n  c: 2", True),
        ("c: 2", True),
        ("    c: 2", True),
        ("a: 1\n…\n  d: 3\n", True),
        ("b:\n  …\n", True),
        ("b:\nc: 2", False),
        ("  d: 3\n…\na: 1", False),
        ("a: 1\n  d: 3", False),
        ("a:", False),
    ],
)
def test_a_block_is_a_part_of_a_file(block: str, found: bool) -> None:
    assert quotes(block, "a: 1\nb:\n  c: 2\n  d: 3\n") is found
