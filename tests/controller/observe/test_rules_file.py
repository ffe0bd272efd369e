"""The node configuration is what its file says, and what it last said while the file is wrong."""

from io import StringIO
from pathlib import Path

import pytest

from controller.observe.rules_file import RulesFile
from driver.process.log import configure
from tests.controller.heard_events import HeardEvents
from tests.gpus import ConfigError

HIDDEN = "version: v1\nrules:\n  - offer: hidden\n"
WHOLE = "version: v1\nrules:\n  - offer: whole\n"
WRONG = "version: v1\nrules:\n  - offer: nothing\n"


class File:
    """A file of rules, what was posted about it, and what it says."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.events = HeardEvents()
        self.labels: dict[str, str] = {}
        self.write(text)
        self.rules = RulesFile(path, self.events, lambda: self.labels)

    def write(self, text: str) -> None:
        new = self.path.with_name("new")
        new.write_text(text)
        new.rename(self.path)

    def forms(self) -> list[str]:
        return [rule.policy.form for rule in self.rules.current().rules]


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "rules.yaml", WHOLE)


def test_the_switched_link_of_a_configmap_is_noticed(tmp_path: Path) -> None:
    for folder, text in (("..1", WHOLE), ("..2", HIDDEN)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rules.yaml").write_text(text)
    data = tmp_path / "..data"
    data.symlink_to("..1")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    rules = RulesFile(tmp_path / "rules.yaml", HeardEvents(), dict)

    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(data)

    assert rules.current().rules[0].policy.form == "hidden"


def test_a_wrong_or_missing_file_leaves_the_rules_and_is_told_once_each_time(file: File) -> None:
    assert file.forms() == ["whole"]
    for text in (WRONG, WRONG):
        file.write(text)
        assert (file.forms(), file.forms()) == (["whole"], ["whole"])
    [(kind, reason, message)] = file.events.posted
    assert (kind, reason) == ("Warning", "NodeConfigurationWrong")
    assert "rules[0].offer" in message

    file.write(HIDDEN)
    assert file.forms() == ["hidden"]
    file.write(WRONG)
    assert file.forms() == ["hidden"]
    file.path.unlink()
    assert file.forms() == ["hidden"]
    [_, again, missing] = file.events.posted
    assert again[2] == message
    assert "cannot read" in missing[2]


@pytest.mark.parametrize("text", [WRONG, "not: [yaml"])
def test_at_first_a_wrong_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"rules\.yaml"):
        RulesFile(path, HeardEvents(), dict)


def pools(inference: str, training: str) -> str:
    """Two pools, each with one rule, and all other nodes, whose GPUs are hidden."""
    return f"""
version: v1
pools:
  - name: inference
    nodeSelector: {{matchLabels: {{pool: inference}}}}
    rules: [{inference}]
  - name: training
    nodeSelector: {{matchLabels: {{pool: training}}}}
    rules: [{training}]
rules:
  - offer: hidden
"""


def test_what_is_wrong_with_another_pool_does_no_harm_here(tmp_path: Path) -> None:
    log = StringIO()
    configure("info", log)
    file = File(tmp_path / "rules.yaml", pools("offer: whole", "offer: nothing"))
    file.labels = {"pool": "inference"}

    assert (file.forms(), file.forms()) == (["whole"], ["whole"])
    assert file.events.posted == []
    [line] = [one for one in log.getvalue().splitlines() if "has mistakes that concern other nodes" in one]
    assert "the pool training of" in line
    assert "pools[1].rules[0].offer" in line


def test_what_becomes_wrong_with_the_own_pool_leaves_the_rules_and_is_told_once(tmp_path: Path) -> None:
    file = File(tmp_path / "rules.yaml", pools("offer: whole", "offer: whole"))
    file.labels = {"pool": "training"}
    assert file.forms() == ["whole"]
    file.write(pools("offer: whole", "offer: nothing"))

    assert (file.forms(), file.forms()) == (["whole"], ["whole"])
    [(_, reason, message)] = file.events.posted
    assert reason == "NodeConfigurationWrong"
    assert "the pool training" in message
    assert "the former rules stay in effect" in message


def test_a_node_whose_pool_was_never_right_has_no_rules(tmp_path: Path) -> None:
    file = File(tmp_path / "rules.yaml", pools("offer: whole", "offer: nothing"))
    file.labels = {"pool": "training"}

    with pytest.raises(ConfigError, match=r"the pool training .* pools\[1\]\.rules\[0\]\.offer"):
        file.forms()
    assert "nothing is offered until it is correct" in file.events.posted[0][2]
    file.labels = {"pool": "inference"}
    assert file.forms() == ["whole"]
