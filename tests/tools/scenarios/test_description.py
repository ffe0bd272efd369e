"""scenario.yaml says what a scenario needs; whatever is not known there is an error that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.scenarios.description import Description, Node, read_description
from tools.scenarios.page import ScenarioWrong

LEAST = "version: v1\nnodes:\n  - machine: hgx-h100\n"


def read(folder: Path, text: str) -> Description:
    file = folder / "scenario.yaml"
    file.write_text(text)
    return read_description(file)


def test_all_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("a machine")
    (tmp_path / "node.yaml").write_text("version: v1\n")
    found = read(
        tmp_path,
        """version: v1
nodes:
  - machine: own.yaml
    count: 2
    labels: {pool: large, zone: 1}
    flags: {controller: [--one], kubeletplugin: [--two, --three]}
  - machine: l4-quad
config: node.yaml
clusters: [real]
why: needs a kernel
long: true
""",
    )
    own = Node(
        str(tmp_path / "own.yaml"), (("pool", "large"), ("zone", "1")), ("--one",), ("--two", "--three")
    )
    assert found.wanted.nodes == (own, own, Node("l4-quad"))
    assert found.wanted.config == "version: v1\n"
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
    with pytest.raises(ScenarioWrong, match=says):
        read(tmp_path, text)
