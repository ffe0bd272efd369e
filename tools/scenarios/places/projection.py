"""Writes the ConfigMap of the node configuration into the controllers' files, as the kubelet does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from driver.kube.client import KubeClient
from driver.kube.reflector import EventType, Reflector, Selection
from driver.process.durable import write_atomically
from envtest.client.api import ApiClient
from envtest.client.errors import NotReady
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode

NAME = "gpu-dra-node-config"
KEY = "config.yaml"
COLLECTION = f"/api/v1/namespaces/{DRIVER_NAMESPACE}/configmaps"
PATH = f"{COLLECTION}/{NAME}"
_WAIT_SECONDS = 10.0


def set_config(api: ApiClient, content: str) -> None:
    """Set the node configuration of the cluster, as ``helm install`` or an admin does."""
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": DRIVER_NAMESPACE},
            "data": {KEY: content},
        }
    )


def config_file(driver: DriverNode) -> Path:
    """The file from which a node's controller reads the node configuration."""
    return driver.folder / "node-config" / "config.yaml"


class Projection:
    """Writes the ConfigMap into files after every change of it, while the context lasts.

    If the ConfigMap has no such key, the files are removed.
    """

    def __init__(self, kubeconfig: Path, files: Sequence[Path]) -> None:
        self._files = files
        self._stop = threading.Event()
        self._client = KubeClient.connect(kubeconfig)
        selection = Selection(COLLECTION, {"metadata.name": NAME}, {})
        self._reflector = Reflector(self._client, selection, self._stop, on_event=self._write)
        self._thread = threading.Thread(target=self._reflector.run, name="node-config", daemon=True)

    def __enter__(self) -> Self:
        """Begin; the files exist once this returns, if the ConfigMap does. Raises NotReady."""
        self._thread.start()
        if not self._reflector.synced.wait(_WAIT_SECONDS):
            self._end()
            raise NotReady(f"the ConfigMap {NAME} could not be read within {_WAIT_SECONDS:g} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._stop.set()
        self._reflector.wake()
        self._client.close()
        self._thread.join(_WAIT_SECONDS)

    def _write(self, kind: EventType, stored: dict[str, Any]) -> None:
        # The kubelet cannot update the volume of a running pod whose ConfigMap is gone, and leaves it alone.
        if kind == "DELETED":
            return
        content = (stored.get("data") or {}).get(KEY)
        for file in self._files:
            if content is None:
                file.unlink(missing_ok=True)
            else:
                write_atomically(file, content.encode())
