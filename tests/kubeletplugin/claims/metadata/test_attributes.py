"""What is told of a device: as it was published, with what prepare knows before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driver.devices.device import AttributeValue, Version
from kubeletplugin.claims.journal.entry import HeldDevice, ShareRecord
from kubeletplugin.claims.metadata import device_attributes
from kubeletplugin.devices.kinds.kind import HeldKind
from tests.kubeletplugin.held import held_kinds
from tests.toy_kind.held import HeldToy

HELD = HeldDevice("gpu", "p", "gpu-0000-01-00-0", "0000:01:00.0", "GPU-1", "u-d", kind="whole")


@dataclass
class Told(HeldToy):
    """A kind that tells what it is given."""

    attributes: dict[str, AttributeValue]

    def metadata(self, _held: HeldDevice) -> dict[str, AttributeValue]:
        """That."""
        return self.attributes


def kind_of(held: HeldDevice) -> HeldKind:
    return held_kinds().of(held)


def test_a_gpu_of_which_no_slice_was_seen_has_its_uuid_and_its_address() -> None:
    assert device_attributes(HELD, kind_of(HELD), {}) == {
        "uuid": {"string": "GPU-1"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
    }


def test_what_was_published_is_told_as_it_was() -> None:
    published = {"productName": {"string": "H100"}, "driverVersion": {"version": "580.1.0"}}
    assert published.items() <= device_attributes(HELD, kind_of(HELD), published).items()


def test_what_a_kind_tells_stands_before_what_was_published() -> None:
    told = device_attributes(
        HELD,
        Told(
            {
                "resource.kubernetes.io/pciBusID": "0000:01:00.4",
                "group": 12,
                "v": Version("1.2.3"),
                "on": True,
            }
        ),
        {"resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"}},
    )
    assert told == {
        "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.4"},
        "group": {"int": 12},
        "v": {"version": "1.2.3"},
        "on": {"bool": True},
    }


def test_a_share_tells_its_limits() -> None:
    mps = ShareRecord("g", "MPS", 1, 1 << 30, active_thread_percentage=25, pinned_memory_mib=1024)
    told = device_attributes(replace(HELD, share=mps), kind_of(HELD), {"sharing": {"string": "none"}})

    assert told["sharing"] == {"string": "mps"}
    assert told["activeThreadPercentage"] == {"int": 25}
    assert told["pinnedMemoryMiB"] == {"int": 1024}
    assert told["shares"] == {"int": 1}
    assert told["memoryBytes"] == {"int": 1 << 30}


def test_a_share_that_is_held_tells_its_limit() -> None:
    limited = replace(HELD, share=ShareRecord("g", "TimeSlicing", 1), memory_limit_bytes=1 << 30)
    assert device_attributes(limited, kind_of(HELD), {})["memoryLimitBytes"] == {"int": 1 << 30}


def test_there_are_never_more_than_the_api_allows_and_those_of_prepare_are_among_them() -> None:
    published = {f"a{index:02}": {"int": index} for index in range(32)}
    told = device_attributes(HELD, kind_of(HELD), published)

    assert len(told) == 32
    assert {"uuid", "resource.kubernetes.io/pciBusID"} <= told.keys()
