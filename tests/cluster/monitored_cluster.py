"""A cluster on whose nodes GPUs are had in every form, and where a Prometheus finds its numbers."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests import fork_server
from tests.cluster.prometheus import Target
from tests.clusters import BRISK, Cluster, DriverNode, EmbeddedCluster, fresh_namespace, paths, wait_for
from tests.flow.claims import allocated, claim_of, request, start, wait_unschedulable
from tests.flow.memory_scene import HOLDS, TIMES, cuda, memory_pod, memory_template, start_held
from tests.flow.metrics import serve_metrics
from tests.flow.mig_scene import pod_of, profile, template
from tests.flow.several_machines import installed_in
from tests.gpus import PciAddress, gpu_device_name
from tests.running import running

MIG_MACHINE = "hgx-h100"
RULES = """version: v1
rules:
  - when: has(gpu.migCapable) && gpu.migCapable
    mig: {dynamic: {profiles: [1g, 2g]}}
    shared:
      - {strategy: TimeSlicing, shares: 4}
      - {strategy: MPS, shares: 4}
  - shared: {strategy: TimeSlicing, memory: {step: 1Gi}}
    offer: whole
"""
GIB = 2**30
ALLOCATED_BYTES = 97 * GIB // 10
"""What a claim with ten GiB uses."""

FORMS = {
    "exclusive": request(device_class="large"),
    "mig": profile("1g.10gb"),
    "time-slicing": request(device_class="shared-timesliced"),
    "mps": request(device_class="shared-mps"),
}
"""What pods of the machine with MIG ask for, by the form that they get."""


@dataclass(frozen=True, slots=True)
class Monitored:
    """The cluster, the namespace of its pods, the machines, and where their numbers are.

    ``free`` are GPUs of the machine with MIG that no pod has.
    """

    cluster: Cluster
    namespace: str
    cut: DriverNode
    held: DriverNode
    targets: tuple[Target, ...]
    free: tuple[PciAddress, ...]


@contextmanager
def monitored() -> Iterator[Monitored]:
    """Two embedded nodes with a running pod for each form, and one that waits for what nobody offers."""
    machines = (MIG_MACHINE, HOLDS)
    with (
        EmbeddedCluster(len(machines), TIMES, start=fork_server.start) as cluster,
        fresh_namespace(cluster.api) as namespace,
    ):
        _, (cut, held) = installed_in(cluster, BRISK, machines, ("mig", "tiers"), RULES)
        targets = tuple(target for driver in (cut, held) for target in _served(driver))
        cut.start_mps()
        try:
            for form, asked in FORMS.items():
                template(cluster, namespace, form, asked)
                start(cluster, namespace, pod_of(form, form))
            memory_template(cluster, namespace, "memory", "10Gi", "shared-memory")
            start_held(cluster, namespace, memory_pod("memory", "memory"))
            template(cluster, namespace, "late", profile("7g.80gb"))
            cluster.api.create(pod_of("late", "late"), namespace)
            wait_unschedulable(cluster, namespace, "late")
            for gpu in range(len(cut.machine.state.gpus)):
                cut.machine.use(gpu, compute=0.5, used_bytes=20 * GIB, power_milliwatts=350_000)
            cut.machine.use(_partition(cluster, namespace), compute=0.8, used_bytes=2 * GIB)
            with cuda(held, namespace, "memory") as client, _others(cluster, namespace, cut) as others:
                client.allocate(ALLOCATED_BYTES)
                yield Monitored(cluster, namespace, cut, held, (*targets, others), _free(cut, namespace))
        finally:
            cut.end_mps()


def _free(driver: DriverNode, namespace: str) -> tuple[PciAddress, ...]:
    """The GPUs of a machine that no pod of the namespace has."""
    taken = {device for form in FORMS for device in allocated(claim_of(driver.cluster, namespace, form))}
    return tuple(
        pci
        for pci in sorted(driver.machine.state.gpus)
        if not any(device.startswith(gpu_device_name(pci)) for device in taken)
    )


def _partition(cluster: Cluster, namespace: str) -> str:
    """The UUID of the partition that a pod has."""
    claim = claim_of(cluster, namespace, "mig")["metadata"]["name"]
    path = paths.resource_claim(claim, namespace)
    told = wait_for(cluster.api, path, lambda stored: bool(stored["status"].get("devices")))
    return str(told["status"]["devices"][0]["data"]["uuid"])


def _served(driver: DriverNode) -> Iterator[Target]:
    """Have both processes of a node serve their numbers."""
    node = driver.node.name
    rules = str(driver.folder / "node-config.yaml")
    for package, flags in (("kubeletplugin", ()), ("controller", ("--config", rules))):
        yield Target(serve_metrics(driver, package, *flags), f"gpu-dra-{package}-metrics", node)
    driver.wait_serving()


@contextmanager
def _others(cluster: Cluster, namespace: str, driver: DriverNode) -> Iterator[Target]:
    """What the exporters of Kubernetes say of these pods and this node, in the names that they have there."""
    pods = cluster.api.list_objects(paths.pod(namespace=namespace))
    now = time.time()
    lines = [
        'scheduler_unschedulable_pods{plugin="DynamicResources",profile="default-scheduler"} 1',
        'dynamic_resource_allocation_resource_claims{allocated="false",admin_access="false",source=""} 1',
    ]
    for pod in pods:
        name = pod["metadata"]["name"]
        labels = f'namespace="{namespace}",pod="{name}",uid="{pod["metadata"]["uid"]}"'
        lines.append(f"kube_pod_created{{{labels}}} {now - 7200}")
        if name == "late":
            lines.append(f"kube_pod_status_unschedulable{{{labels}}} 1")
        else:
            lines.append(f"kube_pod_status_scheduled_time{{{labels}}} {now - 60}")
    refusal = f'kubelet_topology_manager_admission_errors_total{{node="{driver.node.name}"}}'
    refused = itertools.count()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("\n".join([*lines, f"{refusal} {next(refused)}", ""]).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server,
        running(server.serve_forever, server.shutdown),
    ):
        yield Target(f"127.0.0.1:{server.server_port}", "kubernetes")
