"""The plugin's socket for hooks in a thread of a test, and a hook that speaks to it as the real one does."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubeletplugin.sharing.memory.hook_socket import HookSocket
from tests.eventually import WAIT_SECONDS
from tests.plugin import ContainerStart
from tests.running import running

CLAIM = "0a1b2c3d-claim"
DEVICE = f"{CLAIM}-gpu-0000-01-00-0-ts-4-mem"
CGROUP = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope\n"
OK = {"ok": True}


@contextmanager
def serving(folder: Path, instance: str, start: Callable[[ContainerStart], None]) -> Iterator[HookSocket]:
    """An instance that answers with ``start`` inside the block."""
    server = HookSocket(folder, instance, start)
    server.open()
    with running(server.run, server.stop):
        yield server


def call(**changed: Any) -> dict[str, Any]:
    """What a hook says of a container of containerd's."""
    annotations = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "main",
        "io.kubernetes.cri.sandbox-name": "train-0",
        "io.kubernetes.cri.sandbox-namespace": "team",
    }
    state = {"ociVersion": "1.2.0", "id": "abc", "status": "creating", "pid": 7, "bundle": "/run/abc"}
    said = {"version": 1, "claim": CLAIM, "device": DEVICE, "cgroup": CGROUP}
    return {**said, "state": {**state, "annotations": annotations}, **changed}


def line(said: Any) -> bytes:
    """The line of a call."""
    return json.dumps(said).encode() + b"\n"


def connected(path: Path) -> socket.socket:
    """A connection to an instance."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(WAIT_SECONDS)
    client.connect(str(path))
    return client


def answer_of(client: socket.socket) -> Any:
    """The one line that an instance answers; None where it ends without one."""
    heard = bytearray()
    while piece := client.recv(65536):
        heard += piece
    return json.loads(heard) if heard else None


def asked(path: Path, said: bytes) -> Any:
    """What an instance answers to this."""
    with connected(path) as client:
        client.sendall(said)
        return answer_of(client)
