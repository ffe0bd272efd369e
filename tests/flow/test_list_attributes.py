"""A node configuration with lists, on an API server that does not store them: nothing gets worse by it."""

from __future__ import annotations

from typing import Any

from envtest.client.waiting import wait_for_list
from gpuctl.demo.driver_node import DriverNode
from tests.flow.claims import wait_published
from tests.flow.mig_scene import configured, offered


def test_without_the_gate_attributes_stay_single_values_and_an_event_says_so(driver: DriverNode) -> None:
    before = offered(driver)
    versions = [stored["metadata"]["resourceVersion"] for stored in wait_published(driver)]

    with configured(driver, "{version: v1, listAttributes: true}"):
        wait_for_list(driver.cluster.api, "/api/v1/namespaces/default/events", _names_the_gate)

        assert offered(driver) == before
        after = [stored["metadata"]["resourceVersion"] for stored in wait_published(driver)]
        assert after == versions, "nothing is written"


def _names_the_gate(events: list[dict[str, Any]]) -> bool:
    return any(
        event["reason"] == "SliceFieldsDropped" and "DRAListTypeAttributes" in event["message"]
        for event in events
    )
