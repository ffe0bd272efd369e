"""Each fault of a GPU is seen everywhere: taint, pod, event, number, alert, page; and it goes again."""

import html
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.cluster.conftest import PROJECT
from tests.cluster.fault_rounds import ROUNDS, SickGpu
from tests.cluster.prometheus import Prometheus, Target, prometheus
from tests.clusters import DriverNode, fresh_namespace, paths
from tests.eventually import eventually
from tests.flow.claims import allocated, claim_of, gpu_pod, make_template, restored, start, wait_published
from tests.flow.metrics import serve_metrics
from tests.flow.mig_scene import restart_controller
from tests.flow.test_sick_gpus import health, taints
from tests.gpus import PciAddress, RemappedRows, parse_gpu_device_name

DOMAIN = "gpu.nvidia.com/"
RULES = PROJECT / "deploy" / "chart" / "monitoring" / "rules"


@contextmanager
def page_of(driver: DriverNode) -> Iterator[str]:
    """Serve the page of the cluster; its address."""
    command = [sys.executable, "-m", "gpuctl", "web", "--addr", "127.0.0.1:0"]
    command += ["--kubeconfig", str(driver.cluster.admin)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            found = re.search(r"http://\S+/", serving.stdout.readline())
            assert found is not None
            yield found.group()
        finally:
            serving.terminate()


@dataclass(frozen=True, slots=True)
class Seen:
    """A node all of whose GPUs are in use, and where its faults are to be seen."""

    driver: DriverNode
    namespace: str
    pods: dict[PciAddress, str]
    prometheus: Prometheus
    page: str

    def taints(self) -> dict[PciAddress, list[str]]:
        """The taints of each GPU that has some."""
        slices = self.driver.cluster.api.list_objects(paths.resource_slice())
        return {_pci(name): found for name, found in taints(slices).items()}

    def pod_says(self, pci: PciAddress, word: str) -> bool:
        """Whether the kubelet says this of the pod that has the GPU."""
        return health(word)(self.driver.cluster.api.get(paths.pod(self.pods[pci], self.namespace)))

    def events(self, reason: str) -> str:
        """The messages of the node's events of a reason."""
        found = self.driver.cluster.api.list_objects(paths.event())
        return "\n".join(one["message"] for one in found if one["reason"] == reason)

    def numbers(self) -> set[tuple[str, str]]:
        """Which GPU is sick by the controller's numbers, with the key of each taint."""
        found = self.prometheus.ask("gpu_dra_gpu_sick == 1")
        return {(one["metric"]["pci_bus_id"], one["metric"]["key"].removeprefix(DOMAIN)) for one in found}

    def alerts(self) -> set[tuple[str, str]]:
        """Which alert fires for which GPU."""
        found = self.prometheus.ask('ALERTS{alertstate="firing",pci_bus_id!=""}')
        return {(one["metric"]["pci_bus_id"], one["metric"]["alertname"]) for one in found}

    def not_shown(self, texts: set[str]) -> set[str]:
        """Those of the texts that the page of the node lacks."""
        with closing(HTTPConnection(urlsplit(self.page).netloc, timeout=10)) as connection:
            connection.request("GET", f"/node/{self.driver.node.name}")
            answer = connection.getresponse()
            assert answer.status == HTTPStatus.OK
            page = html.unescape(answer.read().decode())
        return {text for text in texts if text not in page}


@pytest.fixture(scope="module")
def seen(real_driver: DriverNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Eight GPUs, a pod on each; a Prometheus that scrapes the controller, and the page."""
    driver, folder = real_driver, tmp_path_factory.mktemp("prometheus")
    restored(driver)
    address = serve_metrics(driver, "controller")
    wait_published(driver)
    target = Target(address, "gpu-dra-controller-metrics", driver.node.name)
    with (
        fresh_namespace(driver.cluster.api) as namespace,
        prometheus(folder, tuple(RULES.glob("*.yaml")), (target,)) as running,
        page_of(driver) as page,
    ):
        make_template(driver.cluster, namespace)
        pods = {}
        for number in range(len(driver.machine.state.gpus)):
            name = f"pod-{number}"
            start(driver.cluster, namespace, gpu_pod(name))
            (device,) = allocated(claim_of(driver.cluster, namespace, name))
            pods[_pci(device)] = name
        yield Seen(driver, namespace, dict(sorted(pods.items())), running, page)
    restart_controller(driver)


def _pci(device: str) -> PciAddress:
    pci = parse_gpu_device_name(device)
    assert pci is not None
    return pci


def becomes(found: Callable[[], object], wanted: object, what: str) -> None:
    """Ask until it is as wanted."""
    eventually(f"{what}: {wanted}", found, lambda last: last == wanted)


def keys(fault: SickGpu) -> set[str]:
    return {taint.partition("=")[0] for taint in fault.taints}


def told(fault: SickGpu) -> set[str]:
    """The taints as the page writes them."""
    return {taint.rpartition(":")[0] for taint in fault.taints}


@pytest.mark.parametrize("name", ROUNDS)
def test_each_fault_is_seen_everywhere_and_goes_again(seen: Seen, name: str) -> None:
    machine, sick = seen.driver.machine, dict(zip(seen.pods, ROUNDS[name], strict=True))

    for pci, fault in sick.items():
        fault.inject(machine, pci)

    wanted = {pci: sorted(fault.taints) for pci, fault in sick.items() if fault.taints}
    becomes(lambda: {pci: sorted(one) for pci, one in seen.taints().items()}, wanted, "taints")
    for pci, fault in sick.items():
        becomes(
            partial(seen.pod_says, pci, fault.pod), True, f"{seen.pods[pci]} is {fault.pod}: {fault.what}"
        )
        becomes(lambda: str(pci) in seen.events(fault.event), True, f"{fault.event}: {fault.what}")  # noqa: B023
    numbers = {(str(pci), key) for pci, fault in sick.items() for key in keys(fault)}
    becomes(seen.numbers, numbers, "numbers")
    alerts = {(str(pci), fault.alert) for pci, fault in sick.items() if fault.alert}
    becomes(lambda: alerts - seen.alerts(), set(), "alerts that do not fire")
    texts = {text for fault in sick.values() for text in told(fault)}
    becomes(lambda: seen.not_shown(texts), set(), "missing on the page")

    machine.heal()
    for pci in sick:
        machine.rows(pci, RemappedRows(0, 0, pending=False, failed=False))
        machine.reset(pci)

    becomes(seen.taints, {}, "taints")
    for pci in sick:
        becomes(partial(seen.pod_says, pci, "Healthy"), True, f"{seen.pods[pci]} is well")
    becomes(seen.numbers, set(), "numbers")
    becomes(seen.alerts, set(), "alerts")


def test_the_table_has_many_faults_and_no_gpu_has_one_of_a_kind_twice() -> None:
    """What comes back on a GPU is believed to be over later and later."""
    rounds = list(ROUNDS.values())
    looked = [
        (gpu, key)
        for faults in rounds
        for gpu, fault in enumerate(faults)
        for key in keys(fault)
        if "xid" not in keys(fault)
    ]
    assert len(looked) == len(set(looked))
    assert sum(map(len, rounds)) >= 25
