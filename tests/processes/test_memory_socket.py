"""Each instance of the plugin answers gpu-memory-hook at a socket of its own, from ready until it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from driver.process.sockets import memory_socket_name
from kubeletplugin.claims.cdi.spec import memory_sockets
from tests.kubeletplugin.sharing.memory.served_hooks import CLAIM, asked, call, line
from tests.processes.node import Node
from tests.processes.process import DriverProcess

FIRST, SECOND = "uid-of-the-first-pod", "uid-of-the-second-pod"


def serving(node: Node, plugin: DriverProcess, pod_uid: str = "") -> Path:
    """The socket of an instance, once it answers there."""
    path = memory_sockets(node.data) / memory_socket_name(pod_uid)
    plugin.wait_for("serving", socket=str(path))
    return path


def answer(path: Path) -> Any:
    """What an instance says of a container whose claim nobody knows."""
    return asked(path, line(call()))


def test_a_container_of_a_claim_that_nobody_prepared_is_refused_with_words(node: Node) -> None:
    with node.plugin() as plugin:
        said = answer(serving(node, plugin))
        assert said["ok"] is False
        assert CLAIM in said["message"]
        assert plugin.stop() == 0
    assert os.listdir(memory_sockets(node.data)) == []


def test_the_older_of_two_instances_answers_until_it_ends_and_then_the_newer(node: Node) -> None:
    with node.plugin(pod_uid=FIRST) as first:
        older = serving(node, first, FIRST)
        with node.plugin(pod_uid=SECOND) as second:
            newer = serving(node, second, SECOND)
            assert [answer(path)["ok"] for path in (older, newer)] == [False, False]
            assert first.stop() == 0
            assert os.listdir(newer.parent) == [newer.name]
            assert answer(newer)["ok"] is False
