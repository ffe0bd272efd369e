"""A node whose watch runs, and the states of the node that it passes on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.eventually import eventually
from tests.gpus import NodeState
from tests.kubeletplugin.fake_node import FakeNode


class Told:
    """Takes the states, and waits for one."""

    def __init__(self) -> None:

        self._states: list[NodeState] = []

    def __call__(self, state: NodeState) -> None:
        self._states.append(state)

    def wait(self, wanted: NodeState) -> None:
        eventually(f"{wanted} is told", lambda: list(self._states), lambda told: told[-1:] == [wanted])


@contextmanager
def watching(node: FakeNode) -> Iterator[Told]:
    """The node's watch runs; it ends when it is told to."""
    node.on_state = told = Told()
    thread = threading.Thread(target=node.watch.run)
    thread.start()
    try:
        yield told
    finally:
        node.watch.stop()
        thread.join(30)
    assert not thread.is_alive()
