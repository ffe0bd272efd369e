"""People hear of a license that is missing, and of one that ends soon, once and in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.health.incident_store import IncidentStore
from controller.observe.observer import Observer
from driver.devices.node_state import NodeState
from driver.devices.taints import TAINT_UNLICENSED
from driver.hardware.inventory import Discovery
from driver.health.verdict import with_verdicts
from driver.nvml.api import Code
from driver.nvml.deadline import Guard
from driver.process.metrics import Metrics
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller.heard_events import HeardEvents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.policy.offers import Offers

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


class Guest:
    """A virtual machine with four vGPUs, and what is offered of it, at a time of day that the test sets."""

    def __init__(self, guard: Guard, machine: str = "a100-vgpu-guest-quad") -> None:
        self.machine = FakeMachine.open(machine)
        self.events = HeardEvents()
        self.now = NOON
        self.offered: Offers | None = None
        discovery = Discovery(self.machine.nvml(), Path("/no-sysfs"), guard)
        self._incidents = IncidentStore()
        self.observer = Observer(
            *(discovery, lambda: None, Metrics(), self.events, self._offered),
            on_check=self._incidents.gpus_checked,
            now=lambda: self.now,
        )
        self.observer.plugin_reports(NodeState())

    def look(self, now: datetime | None = None) -> list[str]:
        """Look once; the events that this has brought."""
        self.now = now or self.now
        before = len(self.events.posted)
        self.observer.check()
        return [reason for _, reason, _ in self.events.posted[before:]]

    def tainted(self) -> list[str]:
        assert self.offered is not None
        return [
            device.name
            for device in with_verdicts(self.offered.devices, self._incidents.verdicts())
            if any((taint.key, taint.effect) == (TAINT_UNLICENSED, "NoSchedule") for taint in device.taints)
        ]

    def status(self) -> list[object]:
        assert self.offered is not None
        return [device.attributes.get("vgpuLicenseStatus") for device in self.offered.devices]

    def _offered(self, offers: Offers, _held: frozenset[str], _gpus: object) -> None:
        self.offered = offers


@pytest.fixture
def guard() -> Iterator[Guard]:
    one = Guard(30.0)
    yield one
    one.close()


@pytest.fixture
def guest(guard: Guard) -> Guest:
    return Guest(guard)


def test_a_vgpu_without_a_license_is_tainted_until_it_has_one(guest: Guest) -> None:
    guest.machine.set_license(1, licensed=False)

    assert guest.look() == ["VgpuUnlicensed"]
    assert guest.tainted() == ["gpu-0000-02-01-0"]
    assert sorted(map(str, guest.status())) == ["Licensed", "Licensed", "Licensed", "Unlicensed"]
    assert guest.look() == [], "it is said once"

    guest.machine.set_license(1, licensed=True, expires=NOON + DAY)

    assert guest.look() == ["VgpuLicensed"]
    assert guest.tainted() == []


def test_a_license_that_was_lost_is_told_of_again(guest: Guest) -> None:
    for licensed, told in ((True, []), (False, ["VgpuUnlicensed"]), (True, ["VgpuLicensed"])) * 2:
        guest.machine.set_license(0, licensed=licensed)
        assert guest.look() == told


def test_a_license_that_ends_within_hours_is_told_of_once(guest: Guest) -> None:
    guest.machine.set_license(2, licensed=True, expires=NOON + DAY)

    assert guest.look(NOON) == []
    assert guest.look(NOON + DAY - 4 * HOUR - MINUTE) == []
    assert guest.look(NOON + DAY - 4 * HOUR + MINUTE) == ["VgpuLicenseEnds"]
    assert guest.look(NOON + DAY - MINUTE) == []
    kind, _, text = guest.events.posted[-1]
    assert (kind, "0000:02:02.0" in text, "2026-11-23T12:00:00Z" in text) == ("Warning", True, True)
    assert guest.tainted() == []


def test_a_license_that_was_renewed_is_no_news_and_is_told_of_anew_when_it_ends(guest: Guest) -> None:
    guest.machine.set_license(2, licensed=True, expires=NOON + DAY)
    guest.look(NOON)
    guest.look(NOON + DAY - HOUR)
    guest.machine.set_license(2, licensed=True, expires=NOON + 2 * DAY)

    assert guest.look(NOON + DAY - HOUR + MINUTE) == []
    assert guest.look(NOON + 2 * DAY - HOUR) == ["VgpuLicenseEnds"]


def test_short_leases_that_are_renewed_in_time_are_no_news(guest: Guest) -> None:
    for minutes in range(0, 240, 9):
        now = NOON + minutes * MINUTE
        guest.machine.set_license(0, licensed=True, expires=now + HOUR)
        assert guest.look(now + 8 * MINUTE) == []

    assert guest.look(now + 50 * MINUTE) == ["VgpuLicenseEnds"]


def test_a_license_without_an_end_never_ends(guest: Guest) -> None:
    assert guest.look(NOON) == []
    assert guest.look(NOON + 1000 * DAY) == []


def test_a_call_that_fails_leaves_what_was_known(guest: Guest) -> None:
    guest.machine.set_license(1, licensed=False)
    guest.look()
    guest.machine.fail("licensable_features", code=Code.UNKNOWN)

    assert guest.look() == []
    assert guest.tainted() == ["gpu-0000-02-01-0"]


def test_a_driver_that_knows_no_licenses_taints_nothing(guest: Guest) -> None:
    guest.machine.not_supported("licensable_features")

    assert guest.look() == []
    assert guest.tainted() == []
    assert guest.status() == [None] * 4


@pytest.mark.parametrize("machine", ["hgx-h100", "a30-passthrough-guest"])
def test_whole_gpus_are_not_asked_for_a_license(guard: Guard, machine: str) -> None:
    node = Guest(guard, machine)
    node.machine.fail("licensable_features")

    assert node.look() == []
    assert node.offered is not None
    assert all(not device.taints for device in node.offered.devices)
