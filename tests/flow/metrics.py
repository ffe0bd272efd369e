"""The numbers that a process of a node serves: at a port that nobody else can take before it does."""

import json
import urllib.request

from tests.clusters import DriverNode
from tests.eventually import eventually


def serve_metrics(driver: DriverNode, package: str, *flags: str) -> str:
    """Start the plugin or the controller again so that it serves its numbers, and return its address."""
    before = driver.process(package)
    before.stop()
    written = len(before.log)
    start = driver.start_plugin if package == "kubeletplugin" else driver.start_controller
    process = start("--metrics-addr", "127.0.0.1:0", *flags)
    said = eventually(
        f"the {package} says where it serves its numbers",
        lambda: [line for line in process.log[written:].splitlines() if '"serving metrics"' in line],
    )
    return f"127.0.0.1:{json.loads(said[-1])['port']}"


def metrics_text(address: str) -> str:
    """What Prometheus gets there, which waits for ten seconds and no longer."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
