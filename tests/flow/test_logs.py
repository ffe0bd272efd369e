"""``kubectl logs`` shows what containers print: the GPUs that they see, as the samples do."""

from __future__ import annotations

from typing import Any

from envtest.client import paths
from envtest.cluster import Cluster
from gpuctl.demo.driver_node import DriverNode
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_claim, make_template, request, start

SCRIPT = "/usr/bin/nvidia-smi -L && echo $HOSTNAME && sleep infinity"


def talking(name: str, claim: str = "") -> dict[str, Any]:
    """A pod that prints which GPUs it sees, and then sleeps."""
    pod = gpu_pod(name, claim)
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", SCRIPT]
    return pod


def wait_log(cluster: Cluster, namespace: str, pod: str, query: str = "") -> list[str]:
    """The lines of a pod's log, once the last is there, which is its name."""
    path = f"{paths.pod(pod, namespace)}/log{query}"

    def lines() -> list[str]:
        return cluster.api.text(path).splitlines()

    return eventually(f"the log ends with {pod}", lines, lambda found: found[-1:] == [pod])


def test_pods_print_the_uuids_of_their_own_gpus(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    make_claim(cluster, namespace, "both", request(count=2))
    start(cluster, namespace, talking("one"))
    start(cluster, namespace, talking("two", "both"))

    one = [line for line in wait_log(cluster, namespace, "one") if line.startswith("GPU ")]
    two = [line for line in wait_log(cluster, namespace, "two") if line.startswith("GPU ")]

    uuids = {driver.machine.uuid(pci) for pci in driver.machine.state.gpus}
    seen = [line.rpartition("UUID: ")[2].rstrip(")") for line in (*one, *two)]
    assert (len(one), len(two)) == (1, 2)
    assert len(set(seen)) == 3
    assert set(seen) <= uuids
    assert wait_log(cluster, namespace, "two", "?container=main&tailLines=1") == ["two"]
