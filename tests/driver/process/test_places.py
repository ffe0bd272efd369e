"""Nobody who holds connections open locks others out."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from driver.process.http_endpoint import Place, Places
from tests.controller.published import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 4


class Open:
    """Places, and who is connected."""

    def __init__(self, sockets: ExitStack) -> None:
        self.clock = Clock()
        self.places = Places(MOST, 2.0, self.clock)
        self._sockets = sockets
        self._theirs: dict[Place, socket.socket] = {}

    def come(self, host: str) -> Place:
        ours, theirs = socket.socketpair()
        self._sockets.enter_context(ours)
        self._sockets.enter_context(theirs).setblocking(False)
        place = self.places.take(host, ours)
        self._theirs[place] = theirs
        return place

    def go(self, place: Place) -> None:
        place.connection.close()
        self.places.leave(place)

    def is_open(self, place: Place) -> bool:
        try:
            return self._theirs[place].recv(1) != b""
        except BlockingIOError:
            return True

    def open(self) -> list[str]:
        return [place.host for place in self._theirs if self.is_open(place)]


@pytest.fixture
def here() -> Iterator[Open]:
    with ExitStack() as sockets:
        yield Open(sockets)


def test_the_host_that_has_most_loses_its_oldest(here: Open) -> None:
    probe, *attacks = (here.come("node"), *(here.come("pod") for _ in range(MOST - 1)))

    here.come("pod")

    assert here.is_open(probe)
    assert [here.is_open(one) for one in attacks] == [False, True, True]


def test_a_probe_keeps_its_place_however_many_come_from_elsewhere(here: Open) -> None:
    for attackers in (["pod"], ["pod", "other", "third"]):
        for number in range(100):
            here.come(attackers[number % len(attackers)])
        probe = here.come("node")
        for number in range(100):
            here.come(attackers[number % len(attackers)])
        assert here.is_open(probe)
        assert len(here.open()) == MOST
        here.go(probe)


def test_who_has_left_makes_room(here: Open) -> None:
    first, *others = (here.come("pod") for _ in range(MOST))
    here.places.leave(first)

    here.come("pod")

    assert all(here.is_open(one) for one in others)


def test_a_request_that_is_not_read_in_time_ends_and_one_that_was_may_be_answered(here: Open) -> None:
    slow, asked = here.come("pod"), here.come("pod")
    here.places.has_read(asked.connection)
    here.clock.seconds += 2.0
    here.places.end_late()
    assert here.open() == ["pod", "pod"]

    here.clock.seconds += 0.1
    here.places.end_late()

    assert (here.is_open(slow), here.is_open(asked)) == (False, True)


def test_a_connection_that_has_ended_by_itself_gives_way_as_well(here: Open) -> None:
    gone = here.come("pod")
    gone.connection.close()
    for _ in range(MOST):
        here.come("pod")

    here.places.leave(gone)
