"""People hear of a license that is missing, and of one that ends soon, once and in time."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.controller.observed import Observed
from tests.gpus import TAINT_UNLICENSED, Code, Guard

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


class Guest(Observed):
    """A virtual machine with four vGPUs, at a time of day that the test sets."""

    def __init__(self, guard: Guard, machine: str = "a100-vgpu-guest-quad") -> None:
        self.now = NOON
        super().__init__(guard, machine, now=lambda: self.now)

    def look(self, now: datetime | None = None) -> list[str]:
        """Look once; the events that this has brought."""
        self.now = now or self.now
        before = len(self.events.posted)
        self.check()
        return [reason for _, reason, _ in self.events.posted[before:]]

    def tainted(self) -> list[str]:
        return [
            device.name
            for device in self.offered[-1]
            if any((taint.key, taint.effect) == (TAINT_UNLICENSED, "NoSchedule") for taint in device.taints)
        ]

    def status(self) -> list[object]:
        return [device.attributes.get("vgpuLicenseStatus") for device in self.offered[-1]]


@pytest.fixture
def guest(guard: Guard) -> Guest:
    return Guest(guard)


LOST, FOUND, ENDS = ["VgpuUnlicensed"], ["VgpuLicensed"], ["VgpuLicenseEnds"]
TOMORROW, AFTER = NOON + DAY, NOON + 2 * DAY


@pytest.mark.parametrize(
    "story",
    [
        # When, the license that the first vGPU has from then on, and what is told.
        [(NOON, None, []), (NOON + 1000 * DAY, None, [])],
        [(NOON, "", LOST), (NOON, "", []), (NOON, TOMORROW, FOUND), (NOON, "", LOST), (NOON, None, FOUND)],
        [
            (NOON, TOMORROW, []),
            (TOMORROW - 4 * HOUR - MINUTE, TOMORROW, []),
            (TOMORROW - 4 * HOUR + MINUTE, TOMORROW, ENDS),
            (TOMORROW - MINUTE, TOMORROW, []),
            (TOMORROW - MINUTE, AFTER, []),
            (AFTER - HOUR, AFTER, ENDS),
        ],
        # Short leases that are renewed in time are no news.
        [
            *((NOON + m * MINUTE, NOON + (m - m % 9) * MINUTE + HOUR, []) for m in range(240)),
            (NOON + 285 * MINUTE, NOON + 294 * MINUTE, ENDS),
        ],
    ],
    ids=["for ever", "lost and found", "ends and is renewed", "short leases"],
)
def test_a_license_is_told_of_once(
    guest: Guest, story: list[tuple[datetime, datetime | str | None, list[str]]]
) -> None:
    for now, expires, told in story:
        if isinstance(expires, datetime):
            guest.machine.set_license(0, licensed=True, expires=expires)
        else:
            guest.machine.set_license(0, licensed=expires is None)
        assert guest.look(now) == told
        if told == ENDS:
            (kind, _, text) = guest.events.posted[-1]
            assert kind == "Warning"
            assert "0000:02:00.0" in text
            assert f"{expires:%Y-%m-%dT%H:%M:%SZ}" in text
        if isinstance(expires, datetime):
            assert guest.tainted() == []
        if expires == "":
            assert guest.tainted() == ["gpu-0000-02-00-0"]
            assert sorted(map(str, guest.status())) == ["Licensed", "Licensed", "Licensed", "Unlicensed"]


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
    assert all(not device.taints for device in node.offered[-1])
