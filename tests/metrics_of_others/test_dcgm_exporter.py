"""The DCGM exporter resolves the devices that the page says, and the page's queries join the others."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from driver.process.metrics.table import TABLE
from tests import needs
from tests.clusters import Object, PlannedNode
from tests.deviceclasses.published_nodes import (
    ALL_TIERS,
    BY_MEMORY,
    DYNAMIC,
    FRACTIONAL,
    MPS,
    SHARED_PARTITIONS,
    TIME_SLICED,
    TO_MACHINES,
    VGPUS,
    devices,
    plan,
)
from tests.metrics_of_others.dcgm_exporter import Resolved, resolve

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "monitoring.md").read_text()
PROMTOOL = shutil.which("promtool")


def told(device: Object, name: str) -> str:
    return str(device["attributes"].get(name, {}).get("string", ""))


def resolved(node: PlannedNode) -> list[tuple[Object, Resolved | None]]:
    """Each device of a node with what the exporter makes of it."""
    slices = list(node.slices)
    pool = slices[0]["spec"]["pool"]["name"]
    return [(one, resolve(slices, pool, one["name"])) for one in devices(node)]


def of_type(node: PlannedNode, *types: str) -> list[tuple[Object, Resolved | None]]:
    found = [(device, one) for device, one in resolved(node) if told(device, "type") in types]
    assert found
    return found


@pytest.mark.parametrize("rules", [None, ALL_TIERS, FRACTIONAL])
def test_whole_gpus_and_fractional_ones_are_resolved_by_their_uuid(rules: str | None) -> None:
    for device, one in of_type(plan("hgx-h100", rules), "gpu"):
        assert one == Resolved(told(device, "uuid"))


def test_static_partitions_are_resolved_with_their_gpu_their_uuid_and_their_profile() -> None:
    for device, one in of_type(plan("hgx-h100", cut=True), "mig"):
        assert one == Resolved(told(device, "parentUUID"), told(device, "uuid"), told(device, "profile"))
        assert one.mig_uuid.startswith("MIG-")


def test_partitions_that_are_made_for_a_claim_are_known_by_gpu_and_profile_and_not_found_there() -> None:
    for device, one in of_type(plan("hgx-h100", DYNAMIC), "mig"):
        assert one == Resolved(told(device, "parentUUID"), "", told(device, "profile"), is_found=False)


@pytest.mark.parametrize(
    ("machine", "rules", "kind"),
    [
        ("t4", TIME_SLICED, "shared"),
        ("hgx-h100", MPS, "shared"),
        ("l4-quad", BY_MEMORY, "shared"),
        ("hgx-h100", SHARED_PARTITIONS, "shared"),
        ("passthrough-quad", TO_MACHINES, "vfio"),
        ("vgpu-host-l40s", VGPUS, "vgpu"),
    ],
)
def test_shares_and_devices_of_virtual_machines_are_not_resolved(machine: str, rules: str, kind: str) -> None:
    mode_on = rules is SHARED_PARTITIONS
    assert {one for _, one in of_type(plan(machine, rules, mode_on=mode_on), kind)} == {None}


def queries() -> list[str]:
    """The page's queries on the metrics of the exporter."""
    return [block for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL) if "DCGM_" in block]


def written(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def series(name: str, **given: str) -> str:
    """A series of the table with all of its labels, empty where they are not given."""
    labels = dict.fromkeys(TABLE[name].labels, "")
    assert given.keys() <= labels.keys()
    return written(name, labels | given)


def dcgm(name: str, **labels: str) -> str:
    return written(name, {"Hostname": "node-a", "modelName": "H100", **labels})


@needs.PROMTOOL
def test_the_queries_of_the_page_put_the_labels_of_claims_on_the_exporters_metrics(tmp_path: Path) -> None:
    share = {"claim_namespace": "team", "device": "d", "kind": "mps", "uuid": "GPU-1", "gpu_uuid": "GPU-1"}
    partition = {"claim_namespace": "team", "claim": "c", "parent_uuid": "GPU-1", "gpu_instance_id": "9"}
    values = {
        series("gpu_dra_device_info", claim="a", share_id="1", **share): "1",
        series("gpu_dra_device_info", claim="b", share_id="2", **share): "1",
        series("gpu_dra_device_info", claim="c", kind="partition", gpu_uuid="GPU-1"): "1",
        series("gpu_dra_partition_info", **partition): "1",
        dcgm("DCGM_FI_DEV_GPU_UTIL", UUID="GPU-1"): "70",
        dcgm("DCGM_FI_DEV_GPU_UTIL", UUID="GPU-2"): "5",
        dcgm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", UUID="GPU-1", GPU_I_ID="9"): "0.5",
        dcgm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", UUID="GPU-1", GPU_I_ID="11"): "0.25",
    }
    busy, partitions = queries()
    tested: list[tuple[str, dict[str, float]]] = [
        (
            f"sum by (claim, Hostname) ({busy})",
            {'{claim="a", Hostname="node-a"}': 70, '{claim="b", Hostname="node-a"}': 70},
        ),
        (f"sum by (claim, Hostname) ({partitions})", {'{claim="c", Hostname="node-a"}': 0.5}),
    ]
    suite = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": value} for name, value in values.items()],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": "0m",
                        "exp_samples": [
                            {"labels": labels, "value": value} for labels, value in wanted.items()
                        ],
                    }
                    for query, wanted in tested
                ],
            }
        ],
    }
    file = tmp_path / "joins.yaml"
    file.write_text(yaml.safe_dump(suite))

    ended = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
