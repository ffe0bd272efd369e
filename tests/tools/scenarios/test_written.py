"""Every scenario is written as the others are, and shows the files that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.catalogue import Scenario, scenario, scenario_names
from tools.scenarios.description import Description, Wanted
from tools.scenarios.page import parse_page
from tools.scenarios.written import faults, quotes

GOOD = """# A scenario
```yaml
name: gpu
```
```sh
kubectl apply -f claim.yaml
```
"""


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_is_written_as_it_should(name: str) -> None:
    assert faults(scenario(name)) == []


def written(folder: Path, text: str) -> Scenario:
    """A scenario with this page, and one file beside it."""
    (folder / "claim.yaml").write_text("kind: ResourceClaim\nmetadata:\n  name: gpu\n")
    config = folder / "scenario.yaml"
    config.touch()
    description = Description(Wanted((), ""), config, ("embedded", "real"), "", long=False)
    return Scenario(folder.name, folder, description, parse_page(folder / "README.md", text))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("name: gpu", "name: cpu", "README.md:2: this YAML is in none of the files"),
        ("claim.yaml", "the claim", "does not mention the file claim.yaml"),
        ("```sh", "```console", "it has no sh block"),
    ],
)
def test_each_fault_is_told(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in GOOD
    (told,) = faults(written(tmp_path, GOOD.replace(before, after)))
    assert says in told


@pytest.mark.parametrize("block", ["b:\nc: 2", "  d: 3\n…\na: 1", "a: 1\n  d: 3"])
def test_lines_that_are_no_part_of_a_file_in_their_order_are_no_quotation(block: str) -> None:
    assert not quotes(block, "a: 1\nb:\n  c: 2\n  d: 3\n")
