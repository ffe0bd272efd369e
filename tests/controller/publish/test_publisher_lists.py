"""Lists in attributes are published where the API server stores them, and single values elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from driver.policy.offers import Offers
from tests.controller.published import GROUP, SLICES, Published, gpus
from tests.eventually import eventually

if TYPE_CHECKING:
    from envtest.embedded.server import EmbeddedApiServer

NUMA = "resource.kubernetes.io/numaNode"
SINGLE = Offers(tuple(replace(one, attributes={NUMA: 0}) for one in gpus(2)), ())
LISTS = replace(SINGLE, near_nodes=((0, 1), (1, 0)))
GATE = frozenset({"DRAListTypeAttributes"})


@pytest.fixture
def stored(server: EmbeddedApiServer, published: Published) -> Published:
    """A publisher of lists whose API server stores them."""
    server.verbs.disabled_gates = frozenset()
    published.publisher.offer(LISTS)
    published.start()
    becomes(published, {"ints": [0, 1]})
    return published


@pytest.fixture
def refused(server: EmbeddedApiServer, published: Published) -> Published:
    """A publisher of lists whose API server does not store them."""
    server.verbs.disabled_gates = GATE
    published.publisher.offer(LISTS)
    published.start()
    becomes(published, {"int": 0})
    return published


def becomes(published: Published, value: dict[str, Any]) -> None:
    """Wait until both GPUs have this NUMA node."""

    def seen() -> list[dict[str, Any]]:
        devices = [one for item in published.slices() for one in item["spec"]["devices"]]
        return [one["attributes"].get(NUMA) for one in devices]

    eventually("the attribute", seen, lambda found: found == [value] * 2)


def minute(published: Published) -> None:
    """Let a minute pass for the publisher, and have it sync."""
    published.clock.seconds += 60
    published.look()


def test_lists_are_written_once(stored: Published) -> None:
    assert stored.settles() == stored.settles()
    assert stored.server.objects("events") == []


def test_the_event_says_what_to_do_where_lists_are_not_stored(refused: Published) -> None:
    (event,) = eventually("an event", lambda: refused.server.objects("events"))

    assert event["reason"] == "SliceFieldsDropped"
    assert "DRAListTypeAttributes" in event["message"]
    assert refused.settles() == refused.settles(), "nothing is written again and again"
    assert refused.publisher.why_not_published() == ""


def test_lists_come_once_the_api_server_stores_them(refused: Published) -> None:
    refused.settles()
    minute(refused)
    refused.settles()

    refused.server.verbs.disabled_gates = frozenset()
    minute(refused)
    minute(refused)

    becomes(refused, {"ints": [0, 1]})


def test_single_values_come_back_when_the_gate_is_turned_off(stored: Published) -> None:
    stored.server.verbs.disabled_gates = GATE
    # The server keeps lists in a slice that has some. A kubelet deletes the slices when it starts.
    stored.server.delete(SLICES)

    becomes(stored, {"int": 0})


def test_single_values_come_back_when_the_configuration_no_longer_says_lists(stored: Published) -> None:
    stored.publisher.offer(SINGLE)

    becomes(stored, {"int": 0})


def test_a_slice_that_is_wrong_in_another_way_is_not_taken_for_one_with_lists(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.verbs.disabled_gates = frozenset()
    server.fail("create", "/resourceslices", code=422, times=2)
    published.publisher.offer(LISTS)
    published.start()

    becomes(published, {"ints": [0, 1]})
    assert server.objects("events") == []


def test_a_controller_that_starts_anew_writes_nothing(stored: Published, again: Published) -> None:
    stored.settles()
    stored.end()
    before = [item["metadata"]["resourceVersion"] for item in stored.server.objects("resourceslices", GROUP)]

    again.publisher.offer(LISTS)
    again.start()
    again.settles()

    after = [item["metadata"]["resourceVersion"] for item in stored.server.objects("resourceslices", GROUP)]
    assert after == before
