"""The schema of the values takes what a cluster can use and refuses the rest, and every value has a meaning.

``python -m tools.chart.generate --check`` says whether the files are those that follow from the types.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.gpus import load_config, parse_config
from tools.chart.nvidia import nvidia_values
from tools.chart.tables import CHART, leaves
from tools.chart.values import Values

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
THEIRS = nvidia_values(CHART / "nvidia-values.yaml")
"""The default of helm's --timeout."""


def test_every_value_has_a_sentence_that_says_what_it_means() -> None:
    assert [path for path, _, meaning in leaves(Values()) if not meaning.endswith(".")] == []


def test_every_example_of_a_node_configuration_is_taken_as_it_stands() -> None:
    deploy = ROOT / "deploy"
    examples = [
        *deploy.glob("examples/node-config/*.yaml"),
        *deploy.glob("scenarios/from-device-plugin/pools.yaml"),
    ]
    refused = {
        file.name: error.message
        for file in examples
        for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(
            {"nodeConfig": yaml.safe_load(file.read_text())}
        )
    }

    assert len(examples) > 12
    assert refused == {}


def test_the_values_for_all_tiers_fit_and_have_the_configuration_of_that_example() -> None:
    values = yaml.safe_load((ROOT / "deploy" / "all-tiers.yaml").read_text())
    example = ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml"

    jsonschema.Draft7Validator(SCHEMA).validate(values)
    assert values["nodeConfig"] == yaml.safe_load(example.read_text())
    assert values["metrics"] == {"enabled": True}  # else gpuctl top shows no number
    assert load_config(ROOT / "deploy" / "all-tiers.yaml") == load_config(example)
    config_map = yaml.safe_dump({"kind": "ConfigMap", "data": {"config.yaml": example.read_text()}})
    assert parse_config(config_map, "a ConfigMap") == load_config(example)


@pytest.mark.parametrize(
    "values",
    [
        {"kubeletRoot": "/var/lib/kubelet/"},
        {"driver": {"root": "run/nvidia"}},
        {"mps": {"shmMib": 0}},
        {"webhook": {"replicas": 0}},
        {"image": {"repository": "a/b:tag"}},
        {"image": {"repository": "REGISTRY/gpu-dra"}},
        {"image": {"repository": "registry.example/Team/gpu-dra"}},
        {"image": {"repository": "registry.example/gpu--dra_"}},
        {"image": {"repository": "https://registry.example/gpu-dra"}},
        {"image": {"tag": ":0.1.0"}},
        {"networkPolicy": {"apiServerPorts": [70000]}},
        {"apiServer": {"port": 6443}},
        {"controller": {"resources": {"requests": {"memory": "64 MB"}}}},
        {"nodeConfig": {"pools": [{"name": "a"}]}},
        {"nodeConfig": {"version": "v2"}},
        {"extraVolumes": [{}]},
    ],
)
def test_a_value_out_of_its_range_is_refused(values: dict[str, Any]) -> None:
    assert not jsonschema.Draft7Validator(SCHEMA).is_valid(values)


@pytest.mark.parametrize(
    "image",
    [
        {"repository": "gpu-dra", "tag": "0.1.0@sha256:" + "a" * 64},
        {"repository": "registry.example:5000/team_a/gpu--dra", "tag": "V1_rc.2"},
        {"repository": "[fd00::1]:5000/gpu-dra"},
    ],
)
def test_an_image_is_named_as_a_container_runtime_takes_it(image: dict[str, str]) -> None:
    assert jsonschema.Draft7Validator(SCHEMA).is_valid({"image": image})


def test_what_a_value_of_nvidias_chart_becomes_is_there_and_everything_else_says_why_not() -> None:
    known = {path for path, _, _ in leaves(Values())} | {
        "updateStrategy",
        "plugin.resources",
        "webhook.resources",
    }
    for one in THEIRS:
        assert bool(one.becomes) is not bool(one.refused), one.path
        assert not one.becomes or one.becomes in known, one.path
    assert len({one.path for one in THEIRS}) == len(THEIRS)


def test_the_folder_of_classes_has_a_link_to_every_file_of_the_chart() -> None:
    """The files lie in the chart: helm sees nothing outside of it, and Flux drops links."""
    home, folder = CHART / "deviceclasses", ROOT / "deviceclasses"
    links = {file.relative_to(folder): file for file in folder.rglob("*.yaml")}

    assert links.keys() == {file.relative_to(home) for file in home.rglob("*.yaml")}
    assert all(file.is_symlink() and file.resolve() == home / name for name, file in links.items())
    assert not any(file.readlink().is_absolute() for file in links.values())
