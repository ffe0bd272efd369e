"""The driver on the embedded cluster with the rules of Kubernetes 1.38, as far as its API tells them."""

from __future__ import annotations

import pytest

from envtest.client import paths
from envtest.client.waiting import fresh_namespace
from envtest.embedded.cluster import EmbeddedCluster
from gpuctl.demo.brisk import BRISK
from tests import fork_server
from tests.flow.claims import gpu_pod, make_claim, request, start, wait_released
from tests.flow.conftest import TIMES
from tests.flow.several_machines import installed_in

RULES = "{version: v1, rules: [{shared: {strategy: TimeSlicing, memory: {step: 5Gi}}}]}"
MEMORY = "gpu.nvidia.com/memory"


def test_a_share_is_prepared_whether_or_not_its_capacity_has_the_domain(
    pytestconfig: pytest.Config,
) -> None:
    if pytestconfig.getoption("--cluster", default="embedded") == "real":
        pytest.skip("there is no release of Kubernetes 1.38 yet")
    with EmbeddedCluster(1, TIMES, start=fork_server.start, kubernetes="1.38") as cluster:
        _, (driver,) = installed_in(cluster, BRISK, ("hgx-h100",), (), RULES)
        with fresh_namespace(cluster.api) as namespace:
            for name, asked in (("full", MEMORY), ("bare", "memory")):
                share = request("gpu", "shared-timesliced", capacity={"requests": {asked: "8Gi"}})
                uid = make_claim(cluster, namespace, name, share)["metadata"]["uid"]

                start(cluster, namespace, gpu_pod(name, name))

                status = cluster.api.get(paths.resource_claim(name, namespace))["status"]
                (result,) = status["allocation"]["devices"]["results"]
                assert result["consumedCapacity"] == {MEMORY: "10Gi"}
                cluster.api.delete(paths.pod(name, namespace))
                wait_released(driver, uid)
