"""Configurations of NVIDIA's device plugin are read strictly, with all errors and their paths at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from driver.errors import ConfigError
from gpuctl.importing.device_plugin import PluginConfig, Replicated, load_device_plugin

PLAIN = """\
version: v1
flags:
  migStrategy: "mixed"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin:
    passDeviceSpecs: false
    deviceListStrategy: "envvar"
    deviceIDStrategy: "uuid"
  gfd:
    oneshot: false
    noTimestamp: false
    sleepInterval: 60s
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: false
    resources:
      - name: nvidia.com/gpu
        replicas: 4
      - name: mig-1g.10gb
        replicas: 2
"""
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: plugin-config, namespace: gpu-operator}
data:
  any: |-
    version: v1
    sharing:
      timeSlicing:
        resources: [{name: nvidia.com/gpu, replicas: 4}]
  tesla-t4.yaml: |-
    sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 8}]}}
  empty: ""
"""
GPU_UUID = "GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d"
MAP = yaml.safe_load(CONFIG_MAP)
PATH = "sharing.timeSlicing.resources[0]"


def load(folder: Path, text: str, name: str = "config.yaml") -> dict[str, PluginConfig]:
    path = folder / name
    path.write_text(text)
    return load_device_plugin(path)


def slicing(folder: Path, entry: str, more: str = "") -> PluginConfig:
    """What is read of one resource that is time-sliced."""
    text = f"sharing: {{timeSlicing: {{{more}resources: [{{{entry}}}]}}}}"
    return load(folder, text)["config"]


def errors(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return caught.value.what


def test_a_plain_file_is_one_configuration_with_the_files_name(tmp_path: Path) -> None:
    assert load(tmp_path, PLAIN, "dp-config.yaml") == {
        "dp-config": PluginConfig(
            "mixed",
            "TimeSlicing",
            (
                Replicated(PATH, "nvidia.com/gpu", 4, "nvidia.com/gpu.shared"),
                Replicated(
                    "sharing.timeSlicing.resources[1]",
                    "nvidia.com/mig-1g.10gb",
                    2,
                    "nvidia.com/mig-1g.10gb.shared",
                ),
            ),
        )
    }


@pytest.mark.parametrize(
    ("place", "documents"),
    [
        ("data", [MAP]),
        ("data", [{"kind": "Namespace"}, {"kind": "List", "items": [{"kind": "Service"}, MAP]}]),
        ("config.map", [{"image": {}, "config": {"map": MAP["data"]}}]),
        ("devicePlugin.config.data", [{"devicePlugin": {"config": {"data": MAP["data"]}}}]),
    ],
)
def test_a_config_map_or_a_charts_values_are_a_configuration_for_each_key(
    tmp_path: Path, place: str, documents: list[Any]
) -> None:
    found = load(tmp_path, yaml.safe_dump_all(documents, sort_keys=False))

    assert list(found) == ["any", "tesla-t4", "empty"]
    assert [one.strategy for one in found.values()] == ["TimeSlicing", "MPS", None]
    assert found["any"].resources[0].path == f"{place}.any.{PATH}"
    assert found["empty"] == PluginConfig()
    assert [one.lost for one in found.values()] == [(), (), ()]


@pytest.mark.parametrize(
    ("entry", "devices"),
    [
        ("devices: all", None),
        ("devices: 2", 2),
        ("devices: [0, '1', '0:1']", ("0", "1", "0:1")),
        (f"devices: [{GPU_UUID}, MIG-{GPU_UUID}/3/0]", (GPU_UUID, f"MIG-{GPU_UUID}/3/0")),
    ],
)
def test_devices_are_all_so_many_or_a_list(
    tmp_path: Path, entry: str, devices: int | tuple[str, ...] | None
) -> None:
    found = slicing(tmp_path, f"name: nvidia.com/gpu, replicas: 2, {entry}")

    assert found.resources[0].devices == devices
    assert [line.partition(": ")[0] for line in found.lost] == (
        [] if devices is None else [f"{PATH}.devices"]
    )


def test_a_rename_is_meant_though_the_device_plugin_ignores_it_and_that_is_said(tmp_path: Path) -> None:
    found = slicing(tmp_path, "name: gpu, replicas: 2, rename: small", "renameByDefault: true, ")

    assert found.resources[0].offered_as == "nvidia.com/small"
    assert found.lost == (f"{PATH}.rename: the device plugin ignores it; here pods ask for nvidia.com/small",)


@pytest.mark.parametrize(
    ("strategy", "said", "lost"),
    [
        ("timeSlicing", "", False),
        ("timeSlicing", "failRequestsGreaterThanOne: true, ", True),
        ("timeSlicing", "failRequestsGreaterThanOne: false, ", False),
        ("mps", "", True),
        ("mps", "failRequestsGreaterThanOne: true, ", True),
        ("mps", "failRequestsGreaterThanOne: false, ", False),
    ],
)
def test_requests_for_several_shares_are_told_of_where_they_were_refused(
    tmp_path: Path, strategy: str, said: str, lost: bool
) -> None:
    text = f"sharing: {{{strategy}: {{{said}resources: [{{name: gpu, replicas: 2}}]}}}}"

    told = load(tmp_path, text)["config"].lost

    assert [line.startswith(f"sharing.{strategy}.failRequestsGreaterThanOne") for line in told] == [
        True
    ] * lost


def test_mps_wins_over_time_slicing_as_in_the_device_plugin(tmp_path: Path) -> None:
    shared = "resources: [{name: nvidia.com/gpu, replicas: 3}]"
    text = f"sharing: {{timeSlicing: {{{shared}}}, mps: {{failRequestsGreaterThanOne: false, {shared}}}}}"

    found = load(tmp_path, text)["config"]

    assert found.strategy == "MPS"
    assert found.lost == ("sharing.timeSlicing: has no effect next to mps, as in the device plugin",)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("flags: {failOnInitError: false}", "flags.failOnInitError"),
        ("flags: {nvidiaDriverRoot: /run/nvidia/driver}", "flags.nvidiaDriverRoot"),
        ("flags: {gdsEnabled: true}", "flags.gdsEnabled"),
        ("flags: {plugin: {deviceListStrategy: [volume-mounts]}}", "flags.plugin.deviceListStrategy"),
        ("flags: {plugin: {sharedDevicesAllocationPolicy: distributed}}", "flags.plugin.sharedDevices"),
        ("flags: {gfd: {oneshot: true}}", "flags.gfd.oneshot"),
        ("resources: {gpus: [{pattern: '*A100*', name: a100}]}", "resources"),
        ("imex: {channelIDs: [0]}", "imex.channelIDs"),
    ],
)
def test_what_has_no_equivalent_is_told_with_its_path(tmp_path: Path, text: str, path: str) -> None:
    (told,) = load(tmp_path, text)["config"].lost

    assert told.startswith(path)


def test_all_errors_are_told_at_once_with_their_paths(tmp_path: Path) -> None:
    found = errors(
        tmp_path,
        """\
version: v1
flags: {migStrategy: both, verbose: true}
sharing:
  timeSlicing:
    resources:
      - {name: nvidia.com/gpu, replicas: 0}
      - {replicas: many}
  other: {}
""",
    )

    for path in (
        "flags.migStrategy: 'both' is not one of",
        "flags: Additional properties are not allowed ('verbose'",
        "sharing: Additional properties are not allowed ('other'",
        "sharing.timeSlicing.resources[0].replicas: 0 is less than the minimum of 1",
        "sharing.timeSlicing.resources[1]: 'name' is a required property",
        "sharing.timeSlicing.resources[1].replicas: 'many' is not of type 'integer'",
    ):
        assert path in found


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("name: nvidia.com/GPU, replicas: 2", f"{PATH}.name: nvidia.com/GPU is not a resource name"),
        (f"name: {'g' * 60}, replicas: 2", f"{PATH}.name: nvidia.com/ggg"),
        (
            "name: gpu, replicas: 2, rename: example.com/gpu",
            f"{PATH}.rename: nvidia.com/example.com/gpu is no",
        ),
        ("name: gpu, replicas: 2, devices: 0", f"{PATH}.devices: must be all"),
        ("name: gpu, replicas: 2, devices: []", f"{PATH}.devices: must be all"),
        ("name: gpu, replicas: 2, devices: some", f"{PATH}.devices: must be all"),
        ("name: gpu, replicas: 2, devices: ['0\"] || true']", f"{PATH}.devices: must be all"),
        (
            "name: gpu, replicas: 2}, {name: gpu, replicas: 3",
            f"{PATH}.name: nvidia.com/gpu is listed more than",
        ),
    ],
)
def test_names_and_devices_that_are_none(tmp_path: Path, entry: str, told: str) -> None:
    assert told in errors(tmp_path, f"sharing: {{timeSlicing: {{resources: [{{{entry}}}]}}}}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: v2", "version: 'v2' is not one of"),
        ("[]", "the document: [] is not of type 'object'"),
        ("version: v1\nversion: v1", "appears more than once"),
        ("sharing: {timeSlicing: {}}", "sharing.timeSlicing: 'resources' is a required property"),
        ("kind: ConfigMap", "data: must be a mapping"),
        ("kind: ConfigMap\n---\nkind: ConfigMap", "has 2 documents of which each may be meant"),
        ("kind: ConfigMap\ndata: {../up: ''}", "data.../up: must be the text"),
        ("kind: ConfigMap\ndata: {a: {}}", "data.a: must be the text"),
        ("kind: ConfigMap\ndata: {a: '['}", "data.a: is not YAML"),
        ("kind: ConfigMap\ndata: {a: 'version: v2'}", "data.a.version: 'v2' is not one of"),
        (
            "kind: ConfigMap\ndata: {a: '', a.yaml: ''}",
            "data.a.yaml: another key has the same configuration name a",
        ),
    ],
)
def test_documents_that_are_no_configuration(tmp_path: Path, text: str, told: str) -> None:
    assert told in errors(tmp_path, text)


def test_a_file_whose_name_cannot_name_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot name a configuration: rename it"):
        load(tmp_path, "version: v1", "a b.yaml")
