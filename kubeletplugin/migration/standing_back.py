"""Waits until the plugin may take NVIDIA's driver's place, and says meanwhile what is in the way.

Two drivers of one name on a node would both be called by the kubelet, one after the other, and each would
hand out GPUs that the other holds. So as long as another one answers, or has left claims that cannot be taken
over, the plugin opens no socket: the kubelet does not know it, and nothing is published. Nothing on the disk
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from driver.errors import DriverError
from driver.process.log import get_logger
from driver.process.stamp import stamp_of
from kubeletplugin.migration.takeover import TakeOver

_log = get_logger("predecessor")

_YOUNG = "young"


@dataclass(frozen=True, slots=True)
class Ports:
    """What is asked while the plugin waits.

    ``other()`` is a socket at which another driver answers, None without one. ``decide()`` says what is to be
    done with the claims in the checkpoint; it raises DriverError. ``tell(text)`` posts an event of the node.
    ``wait(seconds)`` waits. ``clock()`` is in seconds.
    """

    other: Callable[[], Path | None]
    decide: Callable[[], TakeOver]
    tell: Callable[[str], None]
    wait: Callable[[float], object]
    clock: Callable[[], float]


def stand_back(ports: Ports, checkpoint: Path, look_seconds: float) -> TakeOver:
    """Return what is to be taken over, once no other driver is there and all of it can be.

    The sockets are looked at every second, the claims when the checkpoint was written and every
    ``look_seconds``: what of the hardware and the cluster stands in the way may pass.
    """
    waiting = _Waiting(ports, checkpoint, look_seconds)
    while (decided := waiting.look()) is None:
        ports.wait(min(1.0, look_seconds))
    return decided


class _Waiting:
    def __init__(self, ports: Ports, checkpoint: Path, look_seconds: float) -> None:
        self._ports = ports
        self._checkpoint = checkpoint
        self._look_seconds = look_seconds
        self._seen: tuple[object, float] | None = None
        self._decided: TakeOver | None = None
        self._error: DriverError | None = None
        self._told = ""

    def look(self) -> TakeOver | None:
        """What is to be taken over, None while that cannot be."""
        # Before the checkpoint: once the other driver is gone, nobody writes it any more.
        other = self._ports.other()
        self._decide()
        if other is None and self._decided is not None:
            return self._decided
        if other is not None or self._error is not None:
            self._tell(other)
        return None

    def _decide(self) -> None:
        """Decide about the claims anew where something may have changed since the last time."""
        stamp, now = self._stamp(), self._ports.clock()
        if stamp == _YOUNG:
            self._seen = self._decided = self._error = None
            return
        if self._seen is not None and self._seen[0] == stamp and now < self._seen[1] + self._look_seconds:
            return
        self._seen = stamp, now
        try:
            self._decided, self._error = self._ports.decide(), None
        except DriverError as error:
            self._decided, self._error = None, error

    def _stamp(self) -> object:
        """What tells the checkpoint from a later one; it is young while a later one could look the same."""
        try:
            return stamp_of(self._checkpoint) or _YOUNG
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error)

    def _tell(self, other: Path | None) -> None:
        """Say what is in the way, once for each other thing."""
        said = []
        if other is not None:
            said.append(
                f"another driver of the name gpu.nvidia.com answers at {other} on this node, so this one "
                "waits: remove NVIDIA's driver from the node"
            )
        if self._error is not None:
            said.append(f"{self._error.what}: {self._error.way_out}")
        text = "; ".join(said)
        if text == self._told:
            return
        self._told = text
        held = [entry.owner for entry in self._decided.entries] if self._decided else []
        in_the_way = self._error.logged if self._error else ""
        self._ports.tell(text)
        _log.warning("waits for NVIDIA's driver", reason=text, in_the_way=in_the_way, can_be_taken_over=held)
