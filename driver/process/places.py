"""Keeps the open connections of a server few, so that those who hold them open cannot lock others out.

Whoever reaches the port may open as many connections as it likes. When all places are taken, the host that
has most of them loses its oldest; so one that has a single connection, as a kubelet has, keeps it, however
many are opened elsewhere. A request that is not read in time ends with its connection.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(eq=False)
class Place:
    """An open connection, the host it came from, and when; ``is_read`` once its whole request has arrived."""

    host: str
    connection: socket
    began: float
    is_read: bool = False

    def end(self) -> None:
        """End the connection, whatever its thread does with it at the moment."""
        with suppress(OSError):  # it has ended already
            # That of a TLS connection would also take away what its thread reads with.
            socket.shutdown(self.connection, SHUT_RDWR)


class Places:
    """The open connections of one server, ``most`` at a time; safe to use from every thread."""

    def __init__(
        self, most: int, request_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nobody is there; a request may take ``request_seconds`` from the connection to its last byte."""
        self._most = most
        self._request_seconds = request_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: list[Place] = []
        """In the order in which they came."""

    def take(self, host: str, connection: socket) -> Place:
        """Give a connection a place; another one ends for it when all are taken."""
        place = Place(host, connection, self._clock())
        with self._lock:
            gives_way = self._who_gives_way(host) if len(self._taken) >= self._most else None
            if gives_way is not None:
                self._taken.remove(gives_way)
            self._taken.append(place)
        if gives_way is not None:
            gives_way.end()
        return place

    def leave(self, place: Place) -> None:
        """Free the place of a connection that is over."""
        with self._lock, suppress(ValueError):  # it had to give way before
            self._taken.remove(place)

    def has_read(self, connection: socket) -> None:
        """Note that the whole request of a connection has arrived."""
        with self._lock:
            for place in self._taken:
                if place.connection is connection:
                    place.is_read = True

    def end_late(self) -> None:
        """End the connections whose request has not arrived in time."""
        latest = self._clock() - self._request_seconds
        with self._lock:
            late = [place for place in self._taken if not place.is_read and place.began < latest]
        for place in late:
            place.end()

    def _who_gives_way(self, newcomer: str) -> Place:
        """The oldest of the host that has most, with the one that comes; the lock is held."""
        counted = Counter([newcomer, *(place.host for place in self._taken)])
        return max(self._taken, key=lambda place: counted[place.host])  # the first of equals
