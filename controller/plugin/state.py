"""Knows what the kubelet plugins of this node hold and what blocks them, from the state that they report.

Two plugins that live during a rolling update share one journal, but each may see a change of the other
late: so what either of them reports counts. While no plugin reports, the last known state stays. A plugin
too old to report holds nothing that this would protect. A socket that does not even answer for its health
belongs to no plugin of this driver, but to another one of its name: nothing is learned from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from controller.plugin.watch import UNIMPLEMENTED, Stream
from driver.devices.node_state import BlockedPlacement, Healed, NodeState
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from proto import node_state_v1_pb2 as v1

_log = get_logger(__name__)


class PluginState:
    """Calls ``on_state`` with the state of the node when it is first known and whenever it has changed.

    ``stream`` is what has to be listened to.
    """

    def __init__(
        self,
        on_state: Callable[[NodeState], None],
        on_let_go: Callable[[Path, int], None] = lambda _path, _number: None,
        controller: str = "",
    ) -> None:
        """``on_let_go`` is called with the number that the plugin at a socket asks for, 0 for nothing.

        ``controller`` is the name that tells this controller's answer from those of others, empty for a
        controller that does not answer.
        """
        self._on_state = on_state
        self._on_let_go = on_let_go
        self._controller = controller
        self._lock = threading.Lock()
        self._told: dict[Path, NodeState] = {}
        self._silent: set[Path] = set()
        self._healthy: set[Path] = set()
        self._state: NodeState | None = None

    def stream(self) -> Stream[NodeState]:
        """The plugin's state of the node."""
        return Stream(
            "/gpu.nvidia.com.nodestate.v1.NodeState/Watch",
            v1.WatchRequest(controller=self._controller).SerializeToString(),
            read_state,
            self._heard,
            self._ended,
        )

    def plugins(self) -> tuple[Path, ...]:
        """The sockets of the plugins that tell now."""
        with self._lock:
            return tuple(sorted(self._told))

    def health_ended(self, path: Path) -> None:
        """Note that no plugin answers for its health at this socket."""
        with self._lock:
            self._healthy.discard(path)

    def health_heard(self, path: Path) -> None:
        """Note that a plugin has answered for its health at this socket."""
        with self._lock:
            self._healthy.add(path)
            if path in self._silent and path not in self._told:
                self._told[path] = NodeState()
                self._pass_on(union(self._told.values()))

    def _heard(self, path: Path, state: NodeState) -> None:
        self._on_let_go(path, state.let_go)
        with self._lock:
            self._told[path] = state
            self._pass_on(union(self._told.values()))

    def _ended(self, path: Path, code: str) -> None:
        self._on_let_go(path, 0)
        with self._lock:
            self._told.pop(path, None)
            self._silent.discard(path)
            if code == UNIMPLEMENTED:
                self._silent.add(path)
                if path not in self._healthy:
                    return
                self._told[path] = NodeState()
            if self._told:
                self._pass_on(union(self._told.values()))
            elif self._state is not None:
                # A plugin that has ended changes nothing any more; what it held stays held.
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
    """What any of the states holds, blocks, is busy with or has healed, in an order that does not depend on
    theirs.

    Of a GPU that several have healed the last time counts.
    """
    held: set[str] = set()
    blocked: set[BlockedPlacement] = set()
    busy: set[PciAddress] = set()
    healed: dict[PciAddress, int] = {}
    for state in states:
        held.update(state.held)
        blocked.update(state.blocked)
        busy.update(state.busy)
        for one in state.healed:
            healed[one.pci] = max(one.unix_milliseconds, healed.get(one.pci, 0))
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
    """The state in a message of the plugin; raises ValueError or DecodeError when it is none."""
    message = v1.State.FromString(data)
    busy = tuple(map(PciAddress.parse, message.busy))
    healed = tuple(Healed(PciAddress.parse(one.pci_bus_id), one.unix_milliseconds) for one in message.healed)
    return NodeState(tuple(message.held), tuple(map(_blocked, message.blocked)), busy, message.let_go, healed)


def _blocked(message: v1.BlockedPlacement) -> BlockedPlacement:
    span = Placement(message.span.start, message.span.size) if message.HasField("span") else None
    # A newer plugin may have more reasons than we know; whatever it says, the place is blocked.
    reason = cast("Literal['in-use', 'foreign-instance']", message.reason)
    return BlockedPlacement(PciAddress.parse(message.pci_bus_id), span, reason, message.message)
