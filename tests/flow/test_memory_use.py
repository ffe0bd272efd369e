"""What shares use of a GPU is told by metrics, claim status and gpuctl; so is a limit that is not held."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from tests.clusters import DriverNode, Object, commands, fresh_namespace, paths, wait_for
from tests.eventually import eventually
from tests.flow.claims import claim_of
from tests.flow.memory_scene import (
    GIB,
    HOLDS,
    RULES,
    TIMES,
    cuda,
    gpu_of_pod,
    memory_pod,
    memory_template,
    start_held,
)
from tests.flow.metrics import metrics_text, serve_metrics
from tests.flow.several_machines import installed_on
from tests.flow.test_doctor import wait_for_status
from tests.flow.test_pods_and_claims import wait_told
from tests.gpus import Code

SAMPLE = re.compile(r"^(gpu_dra_\w+_memory_\w+)\{(.*)\} (\S+)$")


@dataclass(frozen=True, slots=True)
class Watched:
    """A node whose plugin tells what shares use, and where its metrics are."""

    driver: DriverNode
    address: str

    def bytes_of(self, namespace: str) -> dict[str, float]:
        """The series of the claims of a namespace, and of the GPU of its pod, by name."""
        gpu = f'pci_bus_id="{gpu_of_pod(self.driver, namespace, "train")}"'
        found = (SAMPLE.match(line) for line in metrics_text(self.address).splitlines())
        return {
            match[1]: float(match[3])
            for match in found
            if match
            and (
                f'claim_namespace="{namespace}"' in match[2] or ("_dra_gpu_" in match[1] and gpu in match[2])
            )
        }

    def wait_bytes(self, namespace: str, **wanted: float | None) -> None:
        """Wait until these series are so, absent where they are None."""

        def told() -> dict[str, float | None]:
            series = self.bytes_of(namespace)
            return {name: series.get(f"gpu_dra_{name}_bytes") for name in wanted}

        eventually(f"{wanted}", told, lambda series: series == wanted)


@pytest.fixture(scope="module")
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    """One node that holds shares to their memory."""
    machines = (HOLDS,)
    with installed_on(request.config, machines, rules=RULES, pretend_cgroups=True, times=TIMES) as installed:
        driver = installed[1][0]
        address = serve_metrics(driver, "kubeletplugin", "--used-memory-status-seconds", "1")
        driver.wait_serving()
        yield Watched(driver, address)


@pytest.fixture
def namespace(watched: Watched) -> Iterator[str]:
    """A namespace with a pod whose claim holds ten GiB; both are gone when the test ends."""
    cluster = watched.driver.cluster
    with fresh_namespace(cluster.api) as name:
        memory_template(cluster, name, "ten", "10Gi", "shared-memory")
        start_held(cluster, name, memory_pod("train", "ten"))
        yield name


def wait_status(watched: Watched, namespace: str, is_so: Callable[[Object], bool]) -> Object:
    """Wait until the status of the pod's claim is so; its entry for the share."""
    name = claim_of(watched.driver.cluster, namespace, "train")["metadata"]["name"]

    def tells(stored: Object) -> bool:
        entries = list(stored["status"].get("devices") or [])
        return len(entries) == 1 and is_so(entries[0])

    path = paths.resource_claim(name, namespace)
    stored = wait_for(watched.driver.cluster.api, path, tells)
    return dict(stored["status"]["devices"][0])


def ready(entry: Object) -> tuple[str, str]:
    (condition,) = entry["conditions"]
    return condition["status"], condition["reason"]


def lose_limit(driver: DriverNode, namespace: str) -> None:
    """Have NVML refuse to set limits first, and then the limit gone: the plugin cannot set it in between."""
    driver.machine.fail("set_memory_limits", code=Code.UNKNOWN)
    driver.machine.lift_memory_limits(gpu_of_pod(driver, namespace, "train"))


def status_of_node(watched: Watched, *flags: str) -> Any:
    kubeconfig = ("--kubeconfig", str(watched.driver.cluster.admin))
    return CliRunner().invoke(commands, ["status", *kubeconfig, *flags], catch_exceptions=False)


def test_what_a_share_uses_is_told_by_metrics_status_and_gpuctl(watched: Watched, namespace: str) -> None:
    held = {"claim_memory_limit": 10 * GIB}
    watched.wait_bytes(namespace, **held, claim_memory_used=0, gpu_memory_allocated=10 * GIB)
    with cuda(watched.driver, namespace, "train") as client:
        client.allocate(7 * GIB)

        watched.wait_bytes(
            namespace,
            **held,
            claim_memory_used=7 * GIB,
            container_memory_used=7 * GIB,
            container_memory_limit=10 * GIB,
            gpu_memory_used=7 * GIB,
        )
        assert 'claim_pod="train",device=' in metrics_text(watched.address).replace(
            'claim_container="main",', ""
        )
        entry = wait_status(watched, namespace, lambda one: one["data"].get("memoryUsedBytes") == 7 * GIB)
        assert entry["data"]["memoryLimitBytes"] == 10 * GIB
        assert ready(entry) == ("True", "ShareReady")
        told = status_of_node(watched, "-o", "wide")
        assert told.exit_code == 0
        assert ": 1 share, held 10Gi, uses 7Gi\n" in told.output
        assert f"  {namespace}/" in told.output


def test_a_limit_that_is_gone_and_cannot_be_set_is_told_until_it_is_held_again(
    watched: Watched, namespace: str
) -> None:
    driver, machine = watched.driver, watched.driver.machine
    wait_status(watched, namespace, lambda one: ready(one) == ("True", "ShareReady"))
    lose_limit(driver, namespace)
    try:
        entry = wait_status(watched, namespace, lambda one: ready(one) == ("False", "MemoryLimitNotHeld"))
        assert "nvmlDeviceSetMemoryLimits_v1" in entry["conditions"][0]["message"]
        kind, message = wait_told(driver.cluster, namespace, "MemoryLimitNotHeld")
        assert (kind, entry["device"] in message) == ("ResourceClaim", True)
        told = status_of_node(watched)
        assert told.exit_code == 3
        assert "its memory limit is not enforced: " in told.output
        assert "it has no limit" in str(wait_for_status(driver, "memory-held", "fail")["details"])
    finally:
        machine.heal("set_memory_limits")
    wait_status(watched, namespace, lambda one: ready(one) == ("True", "ShareReady"))
    wait_told(driver.cluster, namespace, "MemoryLimitHeld")
    assert status_of_node(watched).exit_code == 0
