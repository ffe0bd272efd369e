"""What a kubelet's probes are answered: a hung process is not alive, a sick GPU makes nothing restart."""

from __future__ import annotations

import os
import signal
import socket
import time
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from tests.processes.process import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.node import Node

Answer = tuple[int, str]
OK: Answer = (200, "ok")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def asked(port: int, path: str, within_seconds: float = WAIT_SECONDS) -> Answer:
    """Status and sentence; raises OSError or HTTPException when nobody answers."""
    connection = HTTPConnection("127.0.0.1", port, timeout=within_seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().rstrip("\n")
    finally:
        connection.close()


def comes_to(port: int, path: str, is_it: Callable[[Answer], bool]) -> Answer:
    """Ask until the answer is such a one; the last one that came, or why there was none."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            answer = asked(port, path)
        except (OSError, HTTPException) as error:
            answer = (0, str(error))
        if is_it(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def well(answer: Answer) -> bool:
    return answer == OK


def test_the_plugin_is_started_by_itself_and_ready_once_the_kubelet_has_it_registered(node: Node) -> None:
    port = free_port()
    from tests.processes.process import DriverProcess

    flags = node.plugin_flags(health_addr=f"127.0.0.1:{port}")
    with DriverProcess("kubeletplugin", *flags) as plugin:
        assert comes_to(port, "/startupz", well) == OK
        code, sentence = asked(port, "/readyz")
        assert code == 503
        assert f"the kubelet was never seen at {node.registration_socket}" in sentence

        node.register(plugin)

        assert comes_to(port, "/readyz", well) == OK
        assert asked(port, "/livez") == OK
        assert plugin.stop() == 0


def test_the_controller_is_ready_once_it_has_published_what_there_is(node: Node) -> None:
    port = free_port()
    with node.controller(health_addr=f"127.0.0.1:{port}") as controller:
        assert comes_to(port, "/readyz", lambda answer: "no kubelet plugin" in answer[1])[0] == 503
        assert asked(port, "/startupz") == OK
        with node.plugin():
            assert comes_to(port, "/readyz", well) == OK
            assert len(node.devices()) == 8
        assert asked(port, "/livez") == OK
        assert controller.stop() == 0
