"""Times scrapes of a plugin with 8 GPUs and 56 partitions, all claimed, and prepares during scrapes.

The cluster is the embedded one, and NVML the fake one: only the plugin is measured.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from driver.kinds.partition.names import partition_device_name
from envtest.embedded.cluster import EmbeddedCluster
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.kubelet_calls import Plugin, make_claim, make_namespace
from tools.bench.table import Row, Spread, exit_status, lines

PROFILE, PLACES = "1g.10gb", range(7)
SCRAPES = 15
ROUNDS, CALLS = 12, 25
# The plugin keeps what NVML answered for a second. A later scrape asks NVML again.
STALE_SECONDS = 1.1
SCRAPE_LIMIT_MS = 50.0
BESIDE_LIMIT = 1.1

_SERIES = b"gpu_dra_device_memory_used_bytes{"


def free_address() -> str:
    """An address for ``--metrics-addr``, to be used at once: clients of a cluster take free ports, too."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def scrape(address: str) -> bytes:
    """All metrics of the plugin."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return bytes(answer.read())


def scrape_row(address: str, partitions: int) -> Row:
    """How long a scrape takes; raises AssertionError if a partition is missing in it."""
    found = []
    for _ in range(SCRAPES):
        time.sleep(STALE_SECONDS)
        began = time.perf_counter()
        text = scrape(address)
        found.append((time.perf_counter() - began) * 1000)
        counted = sum(line.startswith(_SERIES) for line in text.splitlines())
        if counted != partitions:
            raise AssertionError(f"{counted} of {partitions} partitions have their use told")
    what = f"a scrape of 8 GPUs with {partitions} partitions, all claimed"
    return Row(what, Spread.of(found), SCRAPE_LIMIT_MS, "ms")


@contextmanager
def scraped(address: str) -> Iterator[None]:
    """Scrape the plugin about once a second while the context lasts."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(STALE_SECONDS):
            scrape(address)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()


def beside_row(address: str, plugin: Plugin, claim: pb.Claim) -> Row:
    """Prepare and unprepare of one partition while the plugin is scraped, compared with the same without."""

    def calls() -> float:
        return sum(plugin.unprepare(claim) + plugin.prepare(claim) for _ in range(CALLS))

    ours, floor = [], []
    for _ in range(ROUNDS):
        floor.append(calls())
        with scraped(address):
            ours.append(calls())
    what = "prepare while numbers are fetched once a second, to without"
    return Row(what, Spread.of_ratios(ours, floor), BESIDE_LIMIT)


def main() -> int:
    """Measure on the embedded cluster; returns 1 if a limit is not met."""
    with EmbeddedCluster(1) as cluster:
        driver = DriverNode.install(cluster, machine="hgx-h100")
        address = free_address()
        driver.start_plugin("--metrics-addr", address)
        driver.wait_serving()
        make_namespace(cluster)
        node, gpus = driver.node.name, sorted(driver.machine.state.gpus)
        claims = [
            make_claim(cluster, f"gpu-{gpu}-{start}", node, partition_device_name(pci, PROFILE, start))
            for gpu, pci in enumerate(gpus)
            for start in PLACES
        ]
        plugin = Plugin(driver.plugin_socket)
        plugin.at_once(plugin.prepare, claims)
        table = [scrape_row(address, len(claims)), beside_row(address, plugin, claims[0])]
        plugin.close()
    print("\n".join(lines(table, "median")))
    return exit_status(table)


if __name__ == "__main__":
    sys.exit(main())
