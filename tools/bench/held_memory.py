"""Measures what enforced memory limits cost: when shares are prepared, and when a container starts.

A container's start is delayed by the run of gpu-memory-hook, which is timed with the arguments of the claim's
CDI spec and a new control group. It is compared with NVIDIA's nvidia-cdi-hook, which sets the limits in a
container's environment variables. There are none, so that hook loads no NVML: this machine may have none.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from driver.devices.names import gpu_device_name, shared_device_name
from driver.devices.sharing import SharedForm
from envtest.client.waiting import wait_until
from envtest.real.build import DEFAULT_KUBERNETES, go_programs
from envtest.real.cgroups import CGROUP_ROOT, hierarchies, remove
from envtest.real.startup import start_cluster
from fakegpu.machine.cgroups import FakeCgroups
from fakegpu.machine.spec import MACHINES
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.kubelet_calls import Plugin, make_claim, make_namespace
from tools.bench.scrape import free_address, scrape
from tools.bench.table import Row, Spread, finish
from tools.testbed.memory_hook import memory_hook

MACHINE, DRIVER_VERSION = "hgx-h200", "615.71.09"
RULES = """version: v1
rules:
  - when: gpu.index == 1
    memoryLimits: false
    shared: {strategy: TimeSlicing, memory: {step: 1Gi}}
  - shared: {strategy: TimeSlicing, memory: {step: 1Gi}}
"""
FORM = SharedForm("TimeSlicing", memory=True)
ROUNDS = 60
MANY, CROWDS = 400, 2
GROUP = "gpu-dra-bench-"
"""How the names of the control groups begin."""

MORE_MS, START_MS = 0.3, 10.0
_REQUESTS = re.compile(r"^gpu_dra_api_request_duration_seconds_count\{.*\} (\S+)$", re.MULTILINE)


def beside_counted(plugin: Plugin, held: pb.Claim, counted: pb.Claim) -> Row:
    """How much longer it takes to prepare a share with an enforced limit than one that is only counted."""
    more = []
    for _ in range(ROUNDS):
        floor = plugin.prepare(counted)
        plugin.unprepare(counted)
        more.append(plugin.prepare(held) - floor)
        plugin.unprepare(held)
    return Row(
        "prepare of a share that is held, more than of one that is counted", Spread.of(more), MORE_MS, "ms"
    )


def many(plugin: Plugin, claims: Sequence[pb.Claim], metrics_addr: str) -> list[Row]:
    """How long many shares with limits of their own take: the last ones, and all at once.

    Two seconds after the first claim the plugin begins to write the status of claims. The API server then
    answers the calls more slowly, however many claims are held. So the last ones are prepared again later.
    """
    tenth = len(claims) // 10
    last = claims[-tenth:]
    slower, at_once = [], []
    for _ in range(CROWDS):
        in_row = [plugin.prepare(claim) for claim in claims]
        wait_until_quiet(metrics_addr)
        for claim in last:
            plugin.unprepare(claim)
        slower.append(
            statistics.median(plugin.prepare(claim) for claim in last) / statistics.median(in_row[:tenth])
        )
        plugin.at_once(plugin.unprepare, claims)
        wait_until_quiet(metrics_addr)
        at_once.append(plugin.at_once(plugin.prepare, claims) / sum(in_row))
        plugin.at_once(plugin.unprepare, claims)
        wait_until_quiet(metrics_addr)
    what = f"{len(claims)} shares with limits of their own"
    return [
        Row(f"{what}, the last {tenth} beside the first", Spread.of(slower), 1.3),
        Row(f"{what} at once, beside the same in a row", Spread.of(at_once), 0.8),
    ]


def wait_until_quiet(metrics_addr: str) -> None:
    """Wait until the plugin has sent no request to the API server for a second."""
    sent = -1.0
    while (now := sum(map(float, _REQUESTS.findall(scrape(metrics_addr).decode())))) != sent:
        sent = now
        time.sleep(1)


def machine_file(folder: Path) -> str:
    """The path of a machine with room for many shares, and a driver that enforces their limits."""
    description = yaml.safe_load((MACHINES / f"{MACHINE}.yaml").read_text())
    path = folder / "machine.yaml"
    path.write_text(yaml.safe_dump({**description, "driver_version": DRIVER_VERSION}, sort_keys=False))
    return str(path)


@contextmanager
def container(groups: FakeCgroups, number: int) -> Iterator[Mapping[str, Any]]:
    """A process in a control group of its own, like a container before it runs; yields its OCI state."""
    name = f"{GROUP}{os.getpid()}-{number}"
    folder = _memory_groups() / name
    folder.mkdir()
    groups.make(f"/{name}")
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            # Writing its id moves a process into the group.
            (folder / "cgroup.procs").write_text(str(process.pid))
            yield {"ociVersion": "1.2.0", "id": name, "status": "creating", "pid": process.pid}
        finally:
            process.kill()
            process.wait()
            groups.remove(f"/{name}")
            remove(name)


def _memory_groups() -> Path:
    """The folder of the memory groups: the root of cgroup v2, or of the memory controller of v1."""
    return next(one for one in hierarchies() if one == CGROUP_ROOT or one.name == "memory")


def milliseconds_of(command: list[str], state: Mapping[str, Any]) -> float:
    """How long a run of a hook takes; raises CalledProcessError if it fails."""
    # A runtime gives the container's state to a hook on stdin.
    stdin = json.dumps(state).encode()
    began = time.perf_counter()
    subprocess.run(command, input=stdin, check=True, env={}, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def call_of(driver: DriverNode, claim: pb.Claim) -> dict[str, Any] | None:
    """The hook that the runtime runs for containers of a prepared claim; None if its CDI spec has none."""
    (spec,) = cdi_folder(driver).glob(f"*{claim.uid}*")
    (device,) = json.loads(spec.read_text())["devices"]
    hooks = device["containerEdits"].get("hooks", ())
    return next((one for one in hooks if one["hookName"] == "createRuntime"), None)


def starts(groups: FakeCgroups, call: dict[str, Any], folder: Path) -> list[Row]:
    """How long a container's start waits for the hook, and compared with NVIDIA's; the hooks take turns."""
    theirs = [str(go_programs("container-toolkit") / "nvidia-cdi-hook"), "apply-cuda-memory-limits"]
    (folder / "config.json").write_text(json.dumps({"ociVersion": "1.2.0", "process": {"env": []}}))
    ours, others = [], []
    for number in range(ROUNDS):
        with container(groups, number) as state:
            ours.append(milliseconds_of([call["path"], *call["args"][1:]], state))
            others.append(milliseconds_of([*theirs, "--gpu-id", "GPU-0"], {**state, "bundle": str(folder)}))
    return [
        Row("what a container's start waits for", Spread.of(ours), START_MS, "ms"),
        Row("the same beside nvidia-cdi-hook that finds no limits", Spread.of_ratios(ours, others), None),
    ]


def cdi_folder(driver: DriverNode) -> Path:
    """A folder for CDI specs that containerd does not read: it would read all of them at each change."""
    return driver.folder / "specs"


def serve(driver: DriverNode, metrics_addr: str) -> None:
    """Start the driver, which offers shares of one GPU with memory limits, and of one without."""
    config = driver.folder / "node-config.yaml"
    config.write_text(RULES)
    cdi_folder(driver).mkdir()
    driver.start_plugin("--cdi-dir", str(cdi_folder(driver)), "--metrics-addr", metrics_addr)
    driver.start_controller("--config", str(config))
    driver.wait_serving()


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
def main(kubernetes: str) -> None:
    """Measure shares whose memory is held, on a real cluster; exits 1 when a limit is not met."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        machine = machine_file(cluster.nodes[0].folder)
        driver = DriverNode.install(cluster, machine=machine, memory_hook=memory_hook())
        groups = driver.machine.pretend_cgroups(driver.node.cgroup_dir)
        metrics_addr = free_address()
        serve(driver, metrics_addr)
        make_namespace(cluster)
        gpus = [gpu_device_name(pci) for pci in sorted(driver.machine.state.gpus)]
        first_held, first_counted, held, counted = (
            make_claim(
                cluster, name, driver.node.name, shared_device_name(gpu, FORM), consumed={"memory": "4Gi"}
            )
            for name, gpu in zip(("a", "b", "held", "counted"), (gpus[:2] * 2), strict=True)
        )
        plugin = Plugin(driver.plugin_socket)

        def is_held() -> dict[str, Any] | None:
            """The hook of the claim, once the plugin has seen the published devices."""
            plugin.prepare(held)
            call = call_of(driver, held)
            if call is None:
                plugin.unprepare(held)
            return call

        call = wait_until([], cluster.processes, is_held)
        table = starts(groups, call, driver.folder)
        # The first share of a GPU costs more, and is not measured.
        for one in (first_held, first_counted):
            plugin.prepare(one)
        plugin.unprepare(held)
        table.append(beside_counted(plugin, held, counted))
        crowd = [
            make_claim(
                cluster,
                f"many-{number}",
                driver.node.name,
                shared_device_name(gpus[2 + number % 6], FORM),
                consumed={"memory": "1Gi"},
            )
            for number in range(MANY)
        ]
        table += many(plugin, crowd, metrics_addr)
        plugin.close()
    finish(table, kubernetes, "median")


if __name__ == "__main__":
    main()
