"""Imported configurations of the device plugin are accepted, and pods get from them what they got before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from driver.errors import ConfigError
from driver.policy.config import load_config, parse_config
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.importing.device_plugin import PluginConfig, Replicated
from gpuctl.importing.device_plugin_import import Imported, device_classes, imported, profile_of
from gpuctl.plan.planned import plan_node
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.cel.selector import compile_selector
from kubernetes_rules.defaults import defaulted_claim_spec
from kubernetes_rules.extended_resources import extended_requests
from tests.deviceclasses.published_nodes import MIG_MACHINES, all_plans, devices, plan, selectable

Object = dict[str, Any]

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
SLICE, SLICES = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.shared"
CONFIG_MAP = """\
kind: ConfigMap
data:
  sliced: |-
    sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
  plain: |-
    version: v1
"""


def one(resource: str = GPU, replicas: int = 4, offered_as: str = "", devices: Any = None) -> Replicated:
    return Replicated("r[0]", resource, replicas, offered_as or resource, devices)


def made(*resources: Replicated, mig: Any = "none", strategy: Any = "TimeSlicing") -> Imported:
    return imported("c", PluginConfig(mig, strategy if resources else None, resources), "f.yaml")


def classes(found: Imported) -> dict[str, Object]:
    text = device_classes([found], mixed=False)
    return {doc["spec"]["extendedResourceName"]: doc for doc in yaml.safe_load_all(text) if doc}


def shown(found: Imported, machine: str, *, cut: bool = False) -> Counter[str]:
    """The ends of the names of the devices that a node with this configuration publishes."""
    names = [device["name"] for device in devices(plan(machine, found.text, cut=cut))]
    return Counter("-".join(name.split("-")[5:]) or "whole" for name in names)


def placed(
    found: Imported, machine: str, resource: str, count: int = 1, pods: int = 1000, *, cut: bool = False
) -> int:
    """How many pods with so many of a resource a node with this configuration takes."""
    planned = plan(machine, found.text, cut=cut)
    allocator = Allocator(planned.slices, list(classes(found).values()), ())
    by_resource = classes(found)
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {resource: str(count)}}}]}}
    asked = extended_requests(pod, {resource: by_resource[resource]["metadata"]["name"]}).requests
    for index in range(pods):
        claim: Object = {
            "metadata": {"name": f"p{index}", "namespace": "n", "uid": f"u{index}"},
            "spec": defaulted_claim_spec({"devices": {"requests": asked}}),
        }
        allocations = allocator.allocate({"metadata": {"name": "node-a"}}, [claim])
        if allocations is None:
            return index
        allocator.assume({**claim, "status": {"allocation": allocations[0]}})
    return pods


def test_replicas_of_gpus_become_shares() -> None:
    found = made(one())

    assert shown(found, "t4") == Counter({"ts-4": len(plan("t4").inventory.gpus)})
    assert placed(found, "hgx-h100", GPU) == 32
    assert found.lost == ()


def test_without_sharing_pods_get_whole_gpus() -> None:
    found = made()

    assert shown(found, "hgx-h100") == Counter({"whole": 8})
    assert placed(found, "hgx-h100", GPU) == 8


def test_a_renamed_resource_leaves_no_one_of_the_old_name() -> None:
    found = made(one(offered_as=SHARED))

    assert list(classes(found)) == [SHARED]
    assert placed(found, "hgx-h100", SHARED) == 32


def test_mps_becomes_mps_shares_within_what_a_server_takes() -> None:
    found = made(one(replicas=60), strategy="MPS")

    assert shown(found, "hgx-h100") == Counter({"mps-48": 8})
    assert found.lost == ("r[0].replicas: MPS has at most 48 shares, so 48 are made",)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (2, {"ts-4": 2, "whole": 6}),
        (("0", "5"), {"ts-4": 2, "whole": 6}),
        (("GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d", "3"), {"ts-4": 2, "whole": 6}),
        (("MIG-46f0a2e8-743c-5a04-880a-b4099fd6742d", "0:1"), {"whole": 8}),
    ],
)
def test_gpus_that_are_named_are_shared_and_the_others_whole(devices: Any, expected: dict[str, int]) -> None:
    found = made(one(devices=devices))

    assert shown(found, "hgx-h100") == Counter(expected)
    assert placed(found, "hgx-h100", GPU) == sum(
        4 if form == "ts-4" else 1 for form in Counter(expected).elements()
    )


@pytest.mark.parametrize(
    ("light", "fits"),
    [
        ({"replicas": 8, "devices": ("1",)}, 8),
        ({"replicas": 2, "devices": ("1",)}, 2),
        ({"replicas": 8, "devices": ("GPU-2406bdca-d225-5115-b6c5-7ce207c6e110",)}, 8),
    ],
)
def test_resources_that_differ_by_gpu_get_the_devices_of_their_own(light: Any, fits: int) -> None:
    heavy = one(devices=("0",), replicas=2, offered_as="nvidia.com/heavy")
    found = made(heavy, one(offered_as="nvidia.com/light", **light))

    assert placed(found, "hgx-h100", "nvidia.com/heavy") == 2
    assert placed(found, "hgx-h100", "nvidia.com/light") == fits


@pytest.mark.parametrize("devices", [None, ("0", "1"), ("GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d",)])
def test_resources_that_nothing_tells_apart_are_refused(devices: Any) -> None:
    heavy = one(devices=("0",), offered_as="nvidia.com/heavy")
    light = one(devices=devices, offered_as="nvidia.com/light")

    with pytest.raises(ConfigError, match=r"heavy and nvidia\.com/light stand for shares that nothing"):
        classes(made(heavy, light))
    elsewhere = imported("d", PluginConfig("none", "TimeSlicing", (light,)), "f.yaml")
    told = device_classes([made(heavy), elsewhere], mixed=False)
    assert "# nvidia.com/heavy also selects the shares that are nvidia.com/light on other nodes" in told


def test_entries_for_unlike_gpus_each_have_their_number() -> None:
    found = made(one(devices=("0",), replicas=2), one(devices=("1",), replicas=8))

    assert shown(found, "hgx-h100") == Counter({"ts-2": 1, "ts-8": 1, "whole": 6})


def test_partitions_under_strategy_single_are_gpus_shared_or_not() -> None:
    whole, shared = made(mig="single"), made(one(replicas=2), mig="single")
    partitions = sum(shown(whole, "hgx-h100", cut=True).values())

    assert partitions > 8
    assert placed(whole, "hgx-h100", GPU, cut=True) == partitions
    assert placed(shared, "hgx-h100", GPU, cut=True) == 2 * partitions
    assert placed(shared, "hgx-h100", GPU) == 16


def test_partitions_under_strategy_mixed_are_resources_of_their_profile() -> None:
    found = made(one(SLICE, 2, SLICES), mig="mixed")
    cut = shown(found, "hgx-h100", cut=True)

    assert list(classes(found)) == [GPU, SLICES]
    assert placed(found, "hgx-h100", SLICES, cut=True) == 2 * sum(
        number for name, number in cut.items() if "static-1g-10gb" in name and "me" not in name
    )
    assert placed(found, "hgx-h100", GPU) == 8
    assert found.lost == (
        "r: partitions of all profiles are shared, and only the named profiles are resources",
    )


def test_partitions_of_unlike_numbers_all_have_the_least() -> None:
    found = made(one(SLICE, 6), one("nvidia.com/mig-3g.40gb", 2), mig="mixed")

    rule = parse_config(found.text, "c").rules[0]
    assert [shared.shares for shared in rule.policy.shared] == [2]
    assert "r: all partitions of a GPU have the same number of shares; they get the lowest, 2" in found.lost


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me"),
        ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb+me.all"),
        ("nvidia.com/mig-1g.24gb-me", "1g.24gb-me"),
        ("nvidia.com/mig-1c.3g.40gb", "1c.3g.40gb"),
        ("nvidia.com/gpu", None),
        ("nvidia.com/mig-0g", None),
    ],
)
def test_the_profile_behind_a_resource(resource: str, profile: str | None) -> None:
    assert profile_of(resource) == profile


def test_resources_that_a_node_cannot_have_are_left_out_and_told() -> None:
    found = made(one(SLICE), one("nvidia.com/tpu"))

    assert found.lost == (
        "r[0].name: left out, because migStrategy none has no nvidia.com/mig-1g.10gb",
        "r[0].name: nvidia.com/tpu is not a resource of the device plugin, and is left out",
    )
    assert shown(found, "hgx-h100") == Counter({"whole": 8})


EVERY = [
    made(one(), mig=mig, strategy=strategy)
    for mig in ("none", "single", "mixed")
    for strategy in ("TimeSlicing", "MPS")
] + [
    made(one(offered_as=SHARED), one(SLICE, 2, SLICES), one("nvidia.com/mig-1g.10gb.me"), mig="mixed"),
    made(one(devices=("0",)), mig="single"),
    made(mig="mixed"),
    made(),
]


def test_the_api_server_takes_every_class() -> None:
    with EmbeddedApiServer() as server:
        for doc in yaml.safe_load_all(device_classes(EVERY, mixed=True)):
            if doc:
                stored = server.create("/apis/resource.k8s.io/v1/deviceclasses", doc)
                assert stored["spec"] == doc["spec"]


@pytest.mark.parametrize("machine", ["hgx-h100", "a30-quad", "dgx2", "a100-vgpu-guest"])
@pytest.mark.parametrize("found", EVERY)
def test_every_class_has_an_answer_for_every_device_and_meets_some_of_its_own(
    found: Imported, machine: str
) -> None:
    ways = (False, True) if machine in MIG_MACHINES else (False,)
    own = [device for cut in ways for device in devices(plan(machine, found.text, cut=cut))]
    others = [device for planned in all_plans(machine).values() for device in devices(planned)]
    for doc in classes(found).values():
        selector = compile_selector(doc["spec"]["selectors"][0]["cel"]["expression"])
        matched = [device["name"] for device in [*own, *others] if selector.matches(selectable(device))]
        assert machine != "hgx-h100" or {device["name"] for device in own} & set(matched)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["import", "device-plugin", *arguments], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config-map.yaml"
    path.write_text(CONFIG_MAP)
    return path


def test_one_class_of_the_cluster_serves_nodes_with_unlike_configurations(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"

    result = run(str(file), "--to", str(folder))

    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml")) == [
        "deviceclasses.yaml",
        "node-config/plain.yaml",
        "node-config/sliced.yaml",
    ]
    for path in (folder / "node-config").iterdir():
        load_config(path)
        assert plan_node("hgx-h100", "node", path).withheld == {}
    found = [doc for doc in yaml.safe_load_all((folder / "deviceclasses.yaml").read_text()) if doc]
    assert [doc["spec"]["extendedResourceName"] for doc in found] == [GPU, SHARED]
    with pytest.raises(ConfigError, match="already exists"):
        run(str(file), "--to", str(folder))


def test_without_a_folder_all_is_printed_as_yaml_documents(file: Path) -> None:
    documents = [doc for doc in yaml.safe_load_all(run(str(file)).stdout) if doc]

    assert [doc.get("kind", "node configuration") for doc in documents] == [
        "node configuration",
        "node configuration",
        "DeviceClass",
        "DeviceClass",
    ]


def test_what_has_no_equivalent_is_told_on_stderr_and_by_the_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "mps.yaml"
    path.write_text("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")

    result = run(str(path))

    assert result.exit_code == 3
    assert result.stderr.startswith(
        "sharing.mps.failRequestsGreaterThanOne (the default of mps): a request for several"
    )
    assert "shares: 2" in result.stdout


def test_a_wrong_file_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("version: v2")

    with pytest.raises(ConfigError, match="version: 'v2' is not one of"):
        run(str(path), "--to", str(tmp_path / "out"))

    assert not (tmp_path / "out").exists()


TIERS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: device-plugin-config, namespace: gpu-operator}
data:
  # For training nodes: no sharing
  training: |
    version: v1
    sharing:
      timeSlicing:
        resources:
        - name: nvidia.com/gpu
          replicas: 1
  # For dev nodes: many small notebooks
  development: |
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        resources:
        - name: nvidia.com/gpu
          replicas: 8
"""


def test_one_replica_is_no_sharing_and_hinders_no_other_configuration(tmp_path: Path) -> None:
    path = tmp_path / "tiers.yaml"
    path.write_text(TIERS)

    found = CliRunner().invoke(commands, ["import", "device-plugin", str(path)])

    training, development, *classes = yaml.safe_load_all(found.stdout)
    assert found.exit_code == 3
    (lost,) = found.stderr.splitlines()
    assert lost.startswith("data.training.sharing.timeSlicing.resources[0].replicas: 1 shares nothing")
    assert lost.endswith("nvidia.com/gpu is not shared")
    assert training["rules"] == [{"offer": "whole", "mig": "off"}]
    assert development["rules"][0]["shared"] == {"strategy": "TimeSlicing", "shares": 8}
    names = [one["spec"]["extendedResourceName"] for one in classes if one]
    assert names == ["nvidia.com/gpu", "nvidia.com/gpu.shared"]


@pytest.mark.parametrize(("rename", "told"), [("false", True), ("true", False)])
def test_a_name_for_whole_gpus_and_for_shares_is_told_beside_its_class(
    tmp_path: Path, rename: str, told: bool
) -> None:
    path = tmp_path / "tiers.yaml"
    path.write_text(f"""\
kind: ConfigMap
apiVersion: v1
data:
  training: "version: v1"
  development: |
    version: v1
    sharing:
      timeSlicing: {{renameByDefault: {rename}, resources: [{{name: nvidia.com/gpu, replicas: 8}}]}}
""")

    found = CliRunner().invoke(commands, ["import", "device-plugin", str(path)])

    assert found.exit_code in (0, 3), found.output
    assert ("# nvidia.com/gpu means whole GPUs on some nodes and shares on others" in found.stdout) is told
