"""A claim with devices of two drivers: each driver does its own part and leaves the other's alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from envtest.client import paths
from envtest.client.shipped import PACKAGE_ROOT
from envtest.driver_node import DriverNode
from tests.flow.claims import claim_of, gpu_nodes, gpu_pod, make_template, request, start, wait_released
from tests.flow.other_driver import DEVICE, DRIVER, POOL

SCRIPT = Path(__file__).with_name("other_driver.py")


def nic_objects() -> list[dict[str, Any]]:
    """The other driver's class and slice."""
    api = "resource.k8s.io/v1"
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {
        "driver": DRIVER,
        "nodeName": "node-0",
        "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": DEVICE}],
    }
    return [
        {
            "apiVersion": api,
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [selector]},
        },
        {"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": "node-0-nics"}, "spec": spec},
    ]


def test_a_claim_whose_other_result_belongs_to_another_driver(driver: DriverNode, namespace: str) -> None:
    cluster, node = driver.cluster, driver.node
    command = (sys.executable, str(SCRIPT), str(node.plugins_dir), str(node.registry_dir))
    other = cluster.processes.start("other-driver", command, {"PYTHONPATH": str(PACKAGE_ROOT)})
    driver.wait_serving(node.plugins_dir / DRIVER / "dra.sock")
    cluster.api.apply(nic_objects())
    make_template(cluster, namespace, request("gpu"), request("nic", DRIVER))
    start(cluster, namespace, gpu_pod("both"))

    claim = claim_of(cluster, namespace, "both")
    uid = claim["metadata"]["uid"]
    results = claim["status"]["allocation"]["devices"]["results"]
    assert {result["driver"] for result in results} == {DRIVER, "gpu.nvidia.com"}
    assert len(gpu_nodes(cluster, namespace, "both")) == 1
    (spec,) = node.cdi_dir.glob(f"*{uid}.json")
    assert len(json.loads(spec.read_text())["devices"]) == 1
    cluster.api.delete(paths.pod("both", namespace))
    wait_released(driver, uid)
    cluster.api.delete(paths.resource_slice("node-0-nics"))
    assert other.stop() == 0
