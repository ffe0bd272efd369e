"""``gpuctl web`` over a cluster of either kind, with the rights of its pod and no others."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from tests.clusters import DRIVER_NAMESPACE, Cluster, Process
from tests.eventually import eventually
from tests.gpuctl.web.pages import words

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 25.0
NAME = "page"
"""Of the process among those of the cluster."""


class ServedPage:
    """A page that is being served by a process of its own."""

    def __init__(self, process: Process, address: str) -> None:
        self.process = process
        self.address = address

    def words(self, path: str = "") -> str:
        """What a person reads there."""
        with urlopen(f"{self.address}{path}") as answer:  # noqa: S310 - it is ours
            return words(answer.read().decode())

    def wait_words(self, path: str, *wanted: str, timeout_seconds: float = WAIT_SECONDS) -> str:
        """What a person reads there, once all of these are among it."""
        return self.wait(path, lambda text: all(one in text for one in wanted), str(wanted), timeout_seconds)

    def wait(
        self, path: str, met: Callable[[str], bool], what: str, timeout_seconds: float = WAIT_SECONDS
    ) -> str:
        """The same for any condition."""
        return eventually(f"{what} at /{path}", partial(self.words, path), met, seconds=timeout_seconds)


@contextmanager
def served_page(cluster: Cluster) -> Iterator[ServedPage]:
    """Serve the page until the block ends, with the token of the page's service account."""
    cluster.api.apply(ROOT / "deploy/rbac.yaml")
    kubeconfig = cluster.service_account_kubeconfig(DRIVER_NAMESPACE, "gpu-dra-page", cluster.nodes[0].name)
    command = (sys.executable, "-u", "-m", "gpuctl", "web", "--addr", "127.0.0.1:0")
    known = _addresses(cluster.processes.named(NAME)) if NAME in cluster.processes.names() else []
    process = cluster.processes.start(NAME, [*command, "--kubeconfig", str(kubeconfig)])

    def told() -> str:
        cluster.processes.check_running(NAME)
        return next(iter(_addresses(process)[len(known) :]), "")

    try:
        yield ServedPage(process, eventually("it tells its address", told, context=lambda: process.log))
    finally:
        assert process.stop() == 0, process.log


def _addresses(process: Process) -> list[str]:
    """Where each start of it was served; the log is that of all."""
    told = (line for line in process.log.splitlines() if line.startswith("the page is at "))
    return [line.split()[4] for line in told]
