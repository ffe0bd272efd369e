"""scenario.yaml says what a scenario needs; whatever is not known there is an error that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.description import read_description
from tools.scenarios.page import ScenarioWrong

LEAST = "version: v1\nnodes:\n  - machine: hgx-h100\n"


def test_a_long_scenario_on_one_cluster_is_read_as_that(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(f"{LEAST}clusters: [real]\nwhy: needs a kernel\nlong: true\n")
    found = read_description(file)
    assert (found.clusters, found.long, found.why) == (("real",), True, "needs a kernel")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: v1\nversion: v1", "appears more than once"),
        ("nodes: []", "'version' is a required property"),
        ("version: v1\nnodes: [{machine: h100}]", "'h100' is neither"),
        (f"{LEAST}    count: 5", "asks for 5 nodes, and a cluster has at most 4"),
        (f"{LEAST}    flags: {{plugin: []}}", r"nodes\[0\].flags: .*'plugin' was unexpected"),
        (f"{LEAST}needs: [webhooks]", "'webhooks' is not one of"),
        (f"{LEAST}clusters: [real]", "why has to say why it runs on real only"),
        (f"{LEAST}config: none.yaml", "config names .*none.yaml, which is no file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioWrong, match=says):
        read_description(file)
