"""Measures shares of a GPU compared with a whole GPU in the same run: one by one, and 48 at once.

The claims are already allocated. The MPS daemons are the fake ones: processes that take about a tenth of a
second to start.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import click

from driver.devices.names import gpu_device_name, shared_device_name
from driver.devices.sharing import SharedForm
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.kubelet_calls import Plugin, make_claim, make_namespace
from tools.bench.table import Row, Spread, finish

MACHINE = "hgx-h100"
ROUNDS = 40
STARTS = 3
CROWDS = 3
MANY = 48
FORMS = {"time-sliced": SharedForm("TimeSlicing", MANY), "MPS": SharedForm("MPS", MANY)}


def beside_whole(plugin: Plugin, whole: pb.Claim, share: pb.Claim) -> Spread:
    """The time of a share compared with a whole GPU; the two take turns."""
    floor, ours = [], []
    for _ in range(ROUNDS):
        floor.append(plugin.prepare(whole))
        plugin.unprepare(whole)
        ours.append(plugin.prepare(share))
        plugin.unprepare(share)
    return Spread.of_ratios(ours, floor)


def beside_a_row(plugin: Plugin, shares: Sequence[pb.Claim]) -> Spread:
    """The time of shares of one GPU at once, compared with the same shares one after the other."""
    in_row, at_once = [], []
    for _ in range(CROWDS):
        in_row.append(sum(plugin.prepare(share) for share in shares))
        plugin.at_once(plugin.unprepare, shares)
        at_once.append(plugin.at_once(plugin.prepare, shares))
        plugin.at_once(plugin.unprepare, shares)
    return Spread.of_ratios(at_once, in_row)


def daemon_alone(driver: DriverNode, folder: Path) -> float:
    """The milliseconds until an MPS daemon has started and answered with its limits, without the driver."""
    program = driver.folder / "driver/usr/bin/nvidia-cuda-mps-control"
    own = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "p"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "l")}
    environment = os.environ | own | {"CUDA_VISIBLE_DEVICES": "7"}

    def run(*options: str, said: str = "") -> None:
        subprocess.run([program, *options], input=said, text=True, check=True, env=environment,
                       stdout=subprocess.DEVNULL)  # fmt: skip

    started = time.perf_counter()
    run("-d")
    run(said="set_default_active_thread_percentage 2\nget_default_active_thread_percentage\n")
    milliseconds = (time.perf_counter() - started) * 1000
    run(said="quit\n")
    return milliseconds


def first_share(driver: DriverNode, plugin: Plugin, share: pb.Claim) -> Row:
    """The time of a GPU's first MPS share compared with starting its daemon by hand; the two take turns."""
    alone, ours = [], []
    for number in range(STARTS):
        folder = driver.folder / f"m{number}"
        folder.mkdir()
        alone.append(daemon_alone(driver, folder))
        ours.append(plugin.prepare(share))
        plugin.unprepare(share)
    return Row("first MPS share, beside its daemon by hand", Spread.of_ratios(ours, alone), 1.5)


def of_form(word: str, plugin: Plugin, whole: pb.Claim, shares: Sequence[pb.Claim]) -> list[Row]:
    """The rows of one strategy: a second share of a GPU, and all further shares at once."""
    plugin.prepare(shares[0])
    single = beside_whole(plugin, whole, shares[1])
    at_once = beside_a_row(plugin, shares[1:])
    plugin.unprepare(shares[0])
    return [
        Row(f"another {word} share, beside a whole GPU", single, 1.5),
        Row(f"{len(shares) - 1} more {word} shares of a GPU at once, beside the same in a row", at_once, 1.0),
    ]


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
def main(kubernetes: str) -> None:
    """Measure shares on a real cluster; exits 1 when a limit is not met."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        driver = DriverNode.install(cluster, machine=MACHINE)
        driver.start_mps()
        driver.start_plugin()
        driver.wait_serving()
        make_namespace(cluster)
        node, gpus = driver.node.name, [gpu_device_name(pci) for pci in sorted(driver.machine.state.gpus)]
        whole = make_claim(cluster, "whole", node, gpus[0])
        shares = {
            word: [
                make_claim(
                    cluster,
                    f"{word.lower()}-{number}",
                    node,
                    shared_device_name(gpus[1 + gpu], form),
                    consumed={"shares": "1", "memory": "0"},
                )
                for number in range(MANY)
            ]
            for gpu, (word, form) in enumerate(FORMS.items())
        }
        plugin = Plugin(driver.plugin_socket)
        table = [first_share(driver, plugin, shares["MPS"][0])]
        for word, claims in shares.items():
            table += of_form(word, plugin, whole, claims)
        plugin.close()
    finish(table, kubernetes, "times what it is beside")


if __name__ == "__main__":
    main()
