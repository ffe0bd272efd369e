"""``gpuctl status`` counts what is allocated, free and unwell, and its exit code tells scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.cluster_view import ClusterView
from gpuctl.fleet import fleet, tier_of
from gpuctl.planned_node import plan_node


def claim(device: str, *, pool: str = "node-a/gpu.nvidia.com", admin: bool = False) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": pool, "device": device}
    if admin:
        result["adminAccess"] = True  # type: ignore[assignment]  # the other values are strings
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def slices(node: str = "node-a") -> list[dict[str, Any]]:
    return list(plan_node("a30-quad", node, None).slices)


def test_a_tier_counts_what_is_allocated_and_free() -> None:
    held, watched = claim("gpu-0000-17-00-0"), claim("gpu-0000-65-00-0", admin=True)
    elsewhere = claim("gpu-0000-ca-00-0", pool="node-b/gpu.nvidia.com")

    (node,) = fleet(slices(), [held, watched, elsewhere, {"status": {}}])

    assert node.product == "NVIDIA A30"
    (tier,) = node.tiers.values()
    assert list(node.tiers) == ["whole"]
    assert (tier.devices, tier.allocated, tier.free, tier.unwell, tier.claims) == (4, 1, 3, 0, 1)


def test_a_tainted_device_is_unwell_and_not_free() -> None:
    published = slices()
    taint = {"key": "gpu.nvidia.com/lost", "effect": "NoSchedule"}
    published[0]["spec"]["devices"][2]["taints"] = [taint]
    published[0]["spec"]["devices"][3]["taints"] = [{**taint, "effect": "None"}]

    (node,) = fleet(published, ())

    assert (node.tiers["whole"].free, node.tiers["whole"].unwell) == (3, 1)
    assert [(one.device, one.taints) for one in node.unwell] == [
        ("gpu-0000-ca-00-0", ("gpu.nvidia.com/lost=:NoSchedule",)),
        ("gpu-0000-e3-00-0", ("gpu.nvidia.com/lost=:None",)),
    ]


def test_slices_of_an_old_generation_do_not_count_and_a_missing_one_is_told() -> None:
    (old,) = slices()
    new = json.loads(json.dumps(old))
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 2}
    new["spec"]["devices"] = new["spec"]["devices"][:1]

    (node,) = fleet([old, new], ())

    assert node.pool_problem == "1 of 2 slices of generation 2 are there"
    assert node.tiers["whole"].devices == 1


def test_forms_of_devices_are_tiers() -> None:
    def device(form: str, **more: Any) -> dict[str, Any]:
        return {"attributes": {"type": {"string": form}, **more.pop("attributes", {})}, **more}

    assert tier_of(device("gpu")) == "whole"
    assert tier_of(device("gpu", allowMultipleAllocations=True)) == "shared"
    assert tier_of(device("mig", attributes={"profile": {"string": "1g.10gb"}})) == "mig 1g.10gb"
    assert tier_of(device("vfio")) == "vfio"


def test_a_large_cluster_is_read_in_pages_and_whole(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        for index in range(501):
            server.create("/api/v1/nodes", {"metadata": {"name": f"node-{index}"}})
        view = ClusterView.connect(server.write_kubeconfig(tmp_path / "config"))

        nodes = view.nodes()

        assert len({node["metadata"]["name"] for node in nodes}) == len(nodes) == 501
        assert nodes[0]["kind"] == "Node"
        assert server.count("list", "nodes") == 2


def test_the_exit_code_says_whether_all_is_well(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))

        def run(*arguments: str) -> Any:
            return CliRunner().invoke(commands, ["status", "--kubeconfig", kubeconfig, *arguments])

        assert "no node publishes GPUs" in run().output
        (item,) = slices()
        stored = server.create("/apis/resource.k8s.io/v1/resourceslices", item)
        well = run()
        stored["spec"]["devices"][0]["taints"] = [{"key": "gpu.nvidia.com/lost", "effect": "NoExecute"}]
        server.replace(f"/apis/resource.k8s.io/v1/resourceslices/{stored['metadata']['name']}", stored)
        unwell, told = run(), run("-o", "json")

    assert well.exit_code == 0
    assert "all is well" in well.output
    assert unwell.exit_code == 3
    assert "node-a: gpu-0000-17-00-0 is unwell: gpu.nvidia.com/lost=:NoExecute" in unwell.output
    assert told.exit_code == 3
    assert json.loads(told.output)["nodes"][0]["tiers"]["whole"]["free"] == 3
