"""Notices a device plugin that hands out the GPUs of this node too, by the Node's capacity.

The kubelet writes the resources of device plugins into ``status.capacity``; devices of DRA drivers are never
in it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

from controller.observe.node_events import NodeEvents
from driver.event_reasons import EventReason
from driver.process.log import get_logger

_log = get_logger(__name__)

# Other plugins of NVIDIA use the prefix too, for network cards for example.
_RESOURCE = re.compile(r"nvidia\.com/(?P<name>(?:gpu|mig-[A-Za-z0-9._-]{1,48})(?:\.shared)?)", re.ASCII)
"""The resource names of NVIDIA's device plugin."""

Consequence = Literal["taint", "withhold"]
_WORDS: dict[Consequence, str] = {
    "taint": "they are offered with a taint",
    "withhold": "they are not offered",
}

# The API writes every quantity of zero like this. When a device plugin ends, its resources stay in the
# capacity for five minutes and are 0 then (endpointStopGracePeriod in pkg/kubelet/cm/devicemanager). A
# kubelet that starts begins with 0.
_NOTHING = "0"


def offered_by_device_plugin(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The GPU resources that a device plugin offers on a node, without their prefix, sorted."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return tuple(
        sorted(
            match["name"]
            for resource, amount in capacity.items()
            if (match := _RESOURCE.fullmatch(resource)) and str(amount) != _NOTHING
        )
    )


class DevicePlugin:
    """Calls ``on_change`` with the names of the resources when they change; at first there are none.

    It also logs that and posts an event of the Node. ``seen`` may be called from several threads.
    """

    def __init__(
        self, events: NodeEvents, on_change: Callable[[tuple[str, ...]], None], consequence: Consequence
    ) -> None:
        """``consequence`` is what happens to this driver's devices meanwhile."""
        self._events = events
        self._on_change = on_change
        self._consequence = consequence
        self._lock = threading.Lock()
        self._known: tuple[str, ...] = ()

    def seen(self, node: Mapping[str, Any]) -> None:
        """Take in the Node as it is now."""
        offered = offered_by_device_plugin(node)
        with self._lock:
            if offered == self._known:
                return
            self._known = offered
            # Under the lock, so that calls of two threads arrive in their order.
            self._on_change(offered)
        if offered:
            names = ", ".join(f"nvidia.com/{name}" for name in offered)
            text = (
                f"a device plugin also offers the GPUs of this node, as {names}: "
                f"{_WORDS[self._consequence]} until it is gone; remove it from the node"
            )
            _log.warning("a device plugin also offers GPUs on this node", resources=offered)
            self._events.post(EventReason.DEVICE_PLUGIN_BESIDE, text)
        else:
            _log.info("no device plugin on this node any more")
            self._events.post(
                EventReason.DEVICE_PLUGIN_GONE, "no device plugin offers GPUs on this node any more"
            )
