"""A node whose watch runs, and the states of the node that it passes on."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.eventually import eventually
from tests.gpus import NodeState
from tests.kubeletplugin.fake_node import FakeNode
from tests.running import running


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
    with running(node.watch.run, node.watch.stop):
        yield told
