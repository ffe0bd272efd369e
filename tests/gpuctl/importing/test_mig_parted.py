"""Configurations of mig-parted become node configurations that mean the same."""

from collections import Counter
from pathlib import Path

import pytest

from gpuctl.importing.mig_parted import import_mig_parted
from tests.clusters import plan_node
from tests.gpuctl.importing.test_printed import LOSING, MIG_PARTED
from tests.gpus import load_config

WHOLE = Counter({"gpu": 1})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The node configuration of each configuration."""
    source = tmp_path / "mig-parted.yaml"
    found = {}
    for text in (MIG_PARTED, LOSING):
        source.write_text(text)
        for one in import_mig_parted(source, "layout")[0]:
            found[one.name] = tmp_path / f"{one.name}-made.yaml"
            found[one.name].write_text(one.text)
    return found


def published(machine: str, config: Path) -> dict[int, Counter[str]]:
    """The forms of each GPU of a machine, by its index."""
    found: dict[int, Counter[str]] = {}
    for one in plan_node(machine, "node", config).slices:
        for device in one["spec"].get("devices") or ():
            attributes = device["attributes"]
            form = attributes.get("profile", attributes["type"])["string"]
            found.setdefault(attributes["index"]["int"], Counter())[form] += 1
    return found


def test_each_configuration_means_the_same_on_a_node(files: dict[str, Path]) -> None:
    assert published("hgx-h100", files["all-1g.10gb"]) == {i: Counter({"1g.10gb": 7}) for i in range(8)}
    assert published("hgx-h100", files["all-disabled"]) == dict.fromkeys(range(8), WHOLE)
    assert published("hgx-h100", files["all-enabled"]) == {}
    custom = published("hgx-h100", files["custom"])
    assert custom[0] == custom[1] == WHOLE
    assert custom[2] == Counter({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1})
    assert custom[3] == custom[7] == Counter({"1g.10gb+me": 1, "3g.40gb": 1})


def test_where_entries_meet_the_last_one_decides_as_in_mig_parted(files: dict[str, Path]) -> None:
    forms = published("hgx-h100", files["the-last-one-decides"])

    assert [forms[3], forms[4], forms[5]] == [WHOLE, Counter({"3g.40gb": 2}), Counter({"7g.80gb": 1})]


def test_gpus_whose_partitions_have_no_equivalent_are_not_offered_otherwise(files: dict[str, Path]) -> None:
    assert sorted(published("hgx-h100", files["odd"])) == [2, 3, 4, 5, 6, 7]
    assert [rule.policy.form for rule in load_config(files["odd"]).rules] == ["hidden", "hidden", "whole"]
