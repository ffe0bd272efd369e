"""Merges the states that the kubelet plugins of this node report: what claims hold, and what is blocked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from controller.plugin.watch import Stream
from driver.devices.node_state import BlockedPlacement, Healed, NodeState
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from proto import node_state_v1_pb2 as v1

_log = get_logger(__name__)


class PluginState:
    """Calls ``on_state`` with the state of the node when it is first known and whenever it changes."""

    def __init__(
        self,
        on_state: Callable[[NodeState], None],
        on_let_go: Callable[[Path, int], None] = lambda _path, _number: None,
        controller: str = "",
    ) -> None:
        """``on_let_go`` is called with the number of the request of the plugin at a socket, 0 for none.

        ``controller`` is the name by which a plugin tells this controller's answers from those of others,
        empty for a controller that does not answer.
        """
        self._on_state = on_state
        self._on_let_go = on_let_go
        self._controller = controller
        self._lock = threading.Lock()
        self._states: dict[Path, NodeState] = {}
        self._state: NodeState | None = None

    def stream(self) -> Stream[NodeState]:
        """The stream to open at each plugin."""
        return Stream(
            "/gpu.nvidia.com.nodestate.v1.NodeState/Watch",
            v1.WatchRequest(controller=self._controller).SerializeToString(),
            read_state,
            self._received,
            self._ended,
        )

    def plugins(self) -> tuple[Path, ...]:
        """The sockets of the plugins that report now."""
        with self._lock:
            return tuple(sorted(self._states))

    def _received(self, path: Path, state: NodeState) -> None:
        self._on_let_go(path, state.let_go)
        with self._lock:
            self._states[path] = state
            self._pass_on(union(self._states.values()))

    def _ended(self, path: Path) -> None:
        self._on_let_go(path, 0)
        with self._lock:
            self._states.pop(path, None)
            if self._states:
                self._pass_on(union(self._states.values()))
            elif self._state is not None:
                # No plugin reports now. What claims hold stays held, but nobody changes a GPU any more.
                self._pass_on(replace(self._state, busy=()))

    def _pass_on(self, state: NodeState) -> None:
        if state != self._state:
            self._state = state
            _log.info(
                "state of the node",
                held=state.held,
                blocked=[f"{one.pci}: {one.message or one.reason}" for one in state.blocked],
                busy=list(map(str, state.busy)),
                healed=[str(one.pci) for one in state.healed],
            )
            self._on_state(state)


def union(states: Iterable[NodeState]) -> NodeState:
    """Everything that any of the states has, sorted; of several resets of one GPU the last one counts."""
    # Two plugins share one journal in a rolling update, but each may see a change of the other late.
    held: set[str] = set()
    blocked: set[BlockedPlacement] = set()
    busy: set[PciAddress] = set()
    healed: dict[PciAddress, int] = {}
    for state in states:
        held.update(state.held)
        blocked.update(state.blocked)
        busy.update(state.busy)
        for one in state.healed:
            healed[one.pci] = max(one.boottime_milliseconds, healed.get(one.pci, 0))
    return NodeState(
        tuple(sorted(held)),
        tuple(sorted(blocked, key=_order)),
        tuple(sorted(busy)),
        healed=tuple(Healed(pci, healed[pci]) for pci in sorted(healed)),
    )


def _order(blocked: BlockedPlacement) -> tuple[PciAddress, int, int, str, str]:
    start, size = (-1, 0) if blocked.span is None else (blocked.span.start, blocked.span.size)
    return blocked.pci, start, size, blocked.reason, blocked.message


def read_state(data: bytes) -> NodeState:
    """The state in a message of the plugin; raises ValueError or DecodeError for a malformed one."""
    message = v1.State.FromString(data)
    busy = tuple(map(PciAddress.parse, message.busy))
    healed = tuple(
        Healed(PciAddress.parse(one.pci_bus_id), one.boottime_milliseconds) for one in message.healed
    )
    return NodeState(tuple(message.held), tuple(map(_blocked, message.blocked)), busy, message.let_go, healed)


def _blocked(message: v1.BlockedPlacement) -> BlockedPlacement:
    span = Placement(message.span.start, message.span.size) if message.HasField("span") else None
    # A newer plugin may have reasons that are not in the Literal; the place is blocked all the same.
    reason = cast("Literal['in-use', 'foreign-instance']", message.reason)
    return BlockedPlacement(PciAddress.parse(message.pci_bus_id), span, reason, message.message)
