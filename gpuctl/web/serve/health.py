"""Answers a kubelet's probes beside the page, at an address that shows nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from driver.process.probes import Probes, endpoint
from gpuctl.web.serve.server import WebServer


@contextmanager
def answering(address: str, server: WebServer) -> Iterator[None]:
    """Answer at ``host:port`` as long as the block runs; raises ConfigError.

    Alive while the view is computed, ready once the whole cluster was read.
    """

    def alive() -> str:
        return str(server.engine.failure or "")

    def ready() -> str:
        return "" if server.engine.view.synced else "the cluster is being read"

    served = endpoint(address, Probes(lambda: "", alive, ready))
    thread = threading.Thread(target=served.run, name="probes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        served.stop()
        thread.join()
