"""Configurations of mig-parted are read strictly and become node configurations that mean the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from driver.errors import ConfigError
from driver.policy.config import load_config, parse_config
from gpuctl.__main__ import commands
from gpuctl.importing.mig_parted import Entry, imported, load_mig_parted
from gpuctl.plan.planned import plan_node

FILE = """\
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  all-1g.10gb:
    - device-filter: ["0x233010DE", "0x20B210de"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
    - device-filter: "0x20B010DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 4}
  custom:
    - devices: [0, 1]
      mig-enabled: false
    - devices: [2]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3c.3g.40gb": 1, "1g.20gb": 0}
    - devices: [3, 4, 5, 6, 7]
      mig-enabled: true
      mig-devices: {"1g.10gb+me": 1, "3g.40gb": 1}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mig-parted.yaml"
    path.write_text(FILE)
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["import", "mig-parted", *arguments], catch_exceptions=False)


def published(machine: str, config: Path) -> dict[int, Counter[str]]:
    """The forms of each GPU of a machine, by its index."""
    found: dict[int, Counter[str]] = {}
    for one in plan_node(machine, "node", config).slices:
        for device in one["spec"].get("devices") or ():
            attributes = device["attributes"]
            form = attributes.get("profile", attributes["type"])["string"]
            found.setdefault(attributes["index"]["int"], Counter())[form] += 1
    return found


def test_a_file_is_read_entry_by_entry(file: Path) -> None:
    configs = load_mig_parted(file).configs

    assert list(configs) == ["all-disabled", "all-enabled", "all-1g.10gb", "custom"]
    assert configs["all-1g.10gb"][1] == Entry(None, True, (("1g.10gb", 4),), ("0x20B010DE",))
    assert configs["custom"][0] == Entry((0, 1), False)
    assert configs["custom"][1].profiles == (("1g.10gb", 2), ("2g.20gb", 1), ("3c.3g.40gb", 1))


def test_each_configuration_becomes_a_file_that_loads_and_is_accepted(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "configs"

    result = run(str(file), "--to", str(folder))

    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == [
        "all-1g.10gb.yaml",
        "all-disabled.yaml",
        "all-enabled.yaml",
        "custom.yaml",
    ]
    for path in folder.iterdir():
        load_config(path)
    ones = folder / "all-1g.10gb.yaml"
    assert published("hgx-h100", ones) == {index: Counter({"1g.10gb": 7}) for index in range(8)}
    assert published("hgx-h100", folder / "all-disabled.yaml") == {i: Counter({"gpu": 1}) for i in range(8)}
    assert published("hgx-h100", folder / "all-enabled.yaml") == {}
    custom = published("hgx-h100", folder / "custom.yaml")
    assert custom[0] == custom[1] == Counter({"gpu": 1})
    assert custom[2] == Counter({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1})
    assert custom[3] == custom[7] == Counter({"1g.10gb+me": 1, "3g.40gb": 1})


def test_a_model_filter_becomes_the_product_names_so_that_one_file_serves_unlike_nodes(
    file: Path, tmp_path: Path
) -> None:
    run(str(file), "--to", str(tmp_path / "out"))
    path = tmp_path / "out" / "all-1g.10gb.yaml"

    rules = load_config(path).rules
    assert rules[0].when == (
        'gpu.productName in ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA PG509-210"]'
    )
    assert published("a30-quad", path) == {index: Counter({"gpu": 1}) for index in range(4)}
    # The A100 is the model of the second entry; its MIG mode is off and needs a reset, which the plan says.
    withheld = plan_node("dgx-a100", "node", path).withheld
    assert len(withheld) == 8


def test_without_a_folder_all_are_printed_as_yaml_documents(file: Path) -> None:
    output = run(str(file)).stdout

    documents = list(yaml.safe_load_all(output))
    assert len(documents) == 4
    assert all(document["version"] == "v1" for document in documents)
    for text in output.split("---\n"):
        parse_config(text, "printed")


def test_where_entries_meet_the_last_one_decides_as_in_mig_parted(tmp_path: Path) -> None:
    entries = (
        Entry(None, enabled=False),
        Entry((4, 5), True, (("3g.40gb", 2),)),
        Entry((5,), True, (("7g.80gb", 1),)),
    )
    path = tmp_path / "node.yaml"
    path.write_text(imported("c", entries, "layout", "f").text)

    forms = published("hgx-h100", path)

    assert (forms[3], forms[4], forms[5]) == (
        Counter({"gpu": 1}),
        Counter({"3g.40gb": 2}),
        Counter({"7g.80gb": 1}),
    )


def test_entries_that_never_meet_keep_their_order() -> None:
    apart = (
        Entry((0,), False, (), ("0x233010DE",)),
        Entry((0,), False, (), ("0x20B010DE",)),
        Entry((1,), enabled=False),
    )

    rules = parse_config(imported("c", apart, "layout", "f").text, "c").rules

    assert [rule.when for rule in rules][2] == "gpu.index in [1]"


def test_what_has_no_equivalent_is_said_and_its_gpus_are_not_offered_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(
        "version: v1\nmig-configs:\n  odd:\n"
        '  - {devices: [0], mig-enabled: true, mig-devices: {"1c.3g.40gb": 3}}\n'
        '  - {devices: [1], mig-enabled: true, mig-devices: {"1g.10gb+me,new": 1}}\n'
        '  - {devices: [2], device-filter: ["0x999910DE"], mig-enabled: false}\n'
        '  - {devices: [3], device-filter: ["0x999910DE", "0x233010DE"], mig-enabled: false}\n'
        '  - {devices: [4], device-filter: "0x233010DE:0x16C110DE", mig-enabled: false}\n'
    )
    out = tmp_path / "out"

    result = run(str(path), "--to", str(out))

    assert result.exit_code == 3
    for part in (
        "odd[0].mig-devices: 1c.3g.40gb is a part of a GPU instance",
        "odd[1].mig-devices: 1g.10gb+me,new",
        "odd[2].device-filter: no product name is known for 0x999910DE",
        "odd[3].device-filter: no product name is known for 0x999910DE",
        "odd[4].device-filter: no product name is known for 0x233010DE:0x16C110DE",
    ):
        assert part in result.stderr
    forms = published("hgx-h100", out / "odd.yaml")
    assert sorted(forms) == [2, 3, 4, 5, 6, 7]
    rules = load_config(out / "odd.yaml").rules
    assert [rule.policy.form for rule in rules] == ["hidden", "hidden", "whole"]


def test_static_mode_leaves_the_partitions_to_mig_parted(file: Path) -> None:
    result = run(str(file), "--mode", "static")

    custom = result.stdout.split("---\n")[3]
    rules = parse_config(custom, "custom").rules
    assert [rule.policy.mig.mode for rule in rules] == ["off", "static", "static"]
    assert f"# on the node, before: nvidia-mig-parted apply -f {file} -c custom" in custom
    assert "# partitions made with mig-parted: 2 x 1g.10gb, 1 x 2g.20gb, 1 x 3c.3g.40gb" in custom
    assert result.exit_code == 0


def test_files_that_are_there_are_kept(file: Path, tmp_path: Path) -> None:
    (tmp_path / "custom.yaml").write_text("mine")

    with pytest.raises(ConfigError, match=r"custom\.yaml already exists"):
        run(str(file), "--to", str(tmp_path))

    assert (tmp_path / "custom.yaml").read_text() == "mine"
    assert not (tmp_path / "all-disabled.yaml").exists()


WRONG = [
    ("[]", "the document must be a mapping"),
    ("version: v2\nmig-configs: {a: [{devices: all, mig-enabled: false}]}", "version: must be v1"),
    ("version: v1", "mig-configs: must be a mapping with at least one"),
    ("version: v1\nmig-configs: {a: []}", "mig-configs.a: must be a list with at least one entry"),
    ("version: v1\nmore: 1\nmig-configs: {a: [{devices: all, mig-enabled: false}]}", "more: unknown field"),
    ("version: v1\nmig-configs:\n  a: [{}]\n  a: [{}]", "the key a appears more than once"),
    ("version: v1\nmig-configs: {../a: [{devices: all, mig-enabled: false}]}", "mig-configs.../a: the name"),
    ("version: v1\nmig-configs: {a: [7]}", "mig-configs.a[0]: must be a mapping"),
]
WRONG_ENTRIES = [
    ("mig-enabled: false", "devices: is missing"),
    ("devices: all", "mig-enabled: is missing"),
    ("devices: some, mig-enabled: false", "devices: must be all, or a list of indexes"),
    ("devices: [], mig-enabled: false", "devices: must be all"),
    ("devices: [true], mig-enabled: false", "devices: must be all"),
    ("devices: [-1], mig-enabled: false", "devices: must be all"),
    ("devices: [1, 1], mig-enabled: false", "devices: an index is listed more than once"),
    ("devices: all, mig-enabled: 1", "mig-enabled: must be true or false"),
    ("devices: all, mig-enabled: true", "mig-devices: is missing, although mig-enabled is true"),
    ("devices: all, mig-enabled: true, mig-devices: null", "mig-devices: is missing"),
    ("devices: all, mig-enabled: true, mig-devices: [1g.10gb]", "mig-devices: must be a mapping"),
    ("devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}", "mig-devices: must be empty"),
    ("devices: all, mig-enabled: true, mig-devices: {1g: 1}", "mig-devices.1g: is not a profile"),
    ("devices: all, mig-enabled: true, mig-devices: {1g.10gb: 0}", "mig-devices: must name 1 to 16"),
    ("devices: all, mig-enabled: true, mig-devices: {1g.10gb: 17}", "1g.10gb: must be a number from 0"),
    ("devices: all, mig-enabled: true, mig-devices: {1g.10gb: true}", "1g.10gb: must be a number from 0"),
    ("devices: all, mig-enabled: false, device-filter: 0x233010DE", "device-filter: must be a PCI id in"),
    ('devices: all, mig-enabled: false, device-filter: "H100"', "device-filter: must be a PCI id"),
    (
        'devices: all, mig-enabled: false, device-filter: ["0x233010DE", "0x233010de"]',
        "device-filter: an id is listed more than once",
    ),
    ("devices: all, mig-enabled: false, mode: x", "mode: unknown field"),
]


@pytest.mark.parametrize(("text", "error"), WRONG)
def test_a_wrong_file_is_refused_with_the_path_of_what_is_wrong(
    text: str, error: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_mig_parted(path)

    assert error in str(caught.value)


@pytest.mark.parametrize(("entry", "error"), WRONG_ENTRIES)
def test_a_wrong_entry_is_refused_with_its_path(entry: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    good = "{devices: all, mig-enabled: false}"
    path.write_text(f"version: v1\nmig-configs: {{a: [{good}, {{{entry}}}]}}")

    with pytest.raises(ConfigError) as caught:
        load_mig_parted(path)

    assert f"mig-configs.a[1].{error}" in str(caught.value).replace("mig-devices.1g.10gb", "1g.10gb") or (
        f"mig-configs.a[1].mig-devices.{error}" in str(caught.value)
    )


def test_all_errors_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("version: v9\nmig-configs: {a: [{devices: x, mig-enabled: y}], b: []}")

    with pytest.raises(ConfigError) as caught:
        load_mig_parted(path)

    for part in ("version: ", "mig-configs.a[0].devices", "mig-configs.a[0].mig-enabled", "mig-configs.b"):
        assert part in str(caught.value)


def config_map(**data: str) -> str:
    """What kubectl prints of the ConfigMap of NVIDIA's MIG manager."""
    metadata = {"name": "default-mig-parted-config", "namespace": "gpu-operator", "uid": "u"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def test_the_config_map_of_the_mig_manager_is_read_as_the_file_in_it(tmp_path: Path, file: Path) -> None:
    wrapped = tmp_path / "map.yaml"
    wrapped.write_text(config_map(**{"config.yaml": FILE}))

    plain, found = run(str(file)), run(str(wrapped))

    assert load_mig_parted(wrapped).configs == load_mig_parted(file).configs
    assert (found.exit_code, found.stderr) == (plain.exit_code, plain.stderr)
    for one, other in zip(yaml.safe_load_all(plain.stdout), yaml.safe_load_all(found.stdout), strict=True):
        assert one == other
    assert "# for the nodes with the label nvidia.com/mig.config=all-1g.10gb\n" in found.stdout
    assert "nvidia-mig-parted apply" not in run(str(wrapped), "--mode", "static").stdout


def test_what_else_stands_in_the_values_of_the_operators_chart_is_told(tmp_path: Path) -> None:
    wrapped = tmp_path / "values.yaml"
    text = "version: v1\nmig-configs: {off: [{devices: all, mig-enabled: false}]}\n"
    data = {"config.yaml": text, "hooks.yaml": "version: v1"}
    wrapped.write_text(yaml.safe_dump({"migManager": {"config": {"data": data}}}))

    found = run(str(wrapped))

    assert found.exit_code == 3
    said = "hooks.yaml: left out, because it is not a mig-parted configuration\n"
    assert found.stderr == f"migManager.config.data.{said}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"other.yaml": "x"}, "data.config.yaml: is missing"),
        ({"config.yaml": "version: v2"}, "data.config.yaml: version: must be v1"),
        ({"config.yaml": "{"}, "data.config.yaml: is not YAML"),
    ],
)
def test_errors_in_a_config_map_have_its_path(tmp_path: Path, data: dict[str, str], said: str) -> None:
    wrapped = tmp_path / "map.yaml"
    wrapped.write_text(config_map(**data))

    with pytest.raises(ConfigError, match=said):
        load_mig_parted(wrapped)
