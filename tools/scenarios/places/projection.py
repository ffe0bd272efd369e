"""Writes the ConfigMap of the node configuration into the controllers' files, as the kubelet does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from driver.kube.client import KubeClient
from driver.kube.reflector import EventType, Reflector, Selection
from driver.process.durable import write_atomically
from envtest.client.api import ApiClient
from envtest.client.errors import NotReady
from envtest.cluster import DRIVER_NAMESPACE
from gpuctl.demo.driver_node import DriverNode

NAME = "gpu-dra-node-config"
KEY = "config.yaml"
COLLECTION = f"/api/v1/namespaces/{DRIVER_NAMESPACE}/configmaps"
PATH = f"{COLLECTION}/{NAME}"
_WAIT_SECONDS = 10.0


def set_config(api: ApiClient, content: str) -> None:
    """Make this the node configuration, as ``helm install`` or an admin does."""
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": DRIVER_NAMESPACE},
            "data": {KEY: content},
        }
    )


def config_file(driver: DriverNode) -> Path:
    """Where a node's controller has its configuration."""
    return driver.folder / "node-config" / "config.yaml"


class Projection:
    """Writes what the ConfigMap holds into files, as long as the context lasts, after every change of it.

    Without the key the files go. A ConfigMap that is deleted leaves them as they are: the kubelet fails to
    look at the volume of a running pod then, and does not touch it.
    """

    def __init__(self, kubeconfig: Path, files: Sequence[Path]) -> None:
        self._files = files
        self._stop = threading.Event()
        self._client = KubeClient.connect(kubeconfig)
        selection = Selection(COLLECTION, {"metadata.name": NAME}, {})
        self._reflector = Reflector(self._client, selection, self._stop, on_event=self._write)
        self._thread = threading.Thread(target=self._reflector.run, name="node-config", daemon=True)

    def __enter__(self) -> Self:
        """The projection, running; the files are there if the ConfigMap is. Raises NotReady."""
        self._thread.start()
        if not self._reflector.synced.wait(_WAIT_SECONDS):
            self._end()
            raise NotReady(f"the ConfigMap {NAME} could not be read within {_WAIT_SECONDS:g} s")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        self._end()

    def _end(self) -> None:
        self._stop.set()
        self._reflector.wake()
        self._client.close()
        self._thread.join(_WAIT_SECONDS)

    def _write(self, kind: EventType, stored: dict[str, Any]) -> None:
        if kind == "DELETED":
            return
        content = (stored.get("data") or {}).get(KEY)
        for file in self._files:
            if content is None:
                file.unlink(missing_ok=True)
            else:
                write_atomically(file, content.encode())
