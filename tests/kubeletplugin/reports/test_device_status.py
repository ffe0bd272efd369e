"""What a claim's status has to tell of partitions follows from the journal and from what it tells already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from driver.devices.names import DRIVER_NAME
from kubeletplugin.journal.entry import Entry, HeldDevice, MemoryRecord, ShareRecord
from kubeletplugin.kinds.partition.record import PartitionRecord
from kubeletplugin.reports.device_status import ToldClaim, statuses_to_apply, told_claims
from tests.kubeletplugin.held import era, held_kinds, made

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
RECORD = PartitionRecord("1g.10gb", 19, 6, 1, True, 9, 0, "MIG-1")
MADE = HeldDevice(
    "gpu", "pool", "gpu-0000-8a-00-0-mig-1g-10gb-6", "0000:8a:00.0", "GPU-1", "cdi", **made(RECORD)
)
ENTRY = Entry("uid", "team", "train", "prepared", "boot-1", 7, (MADE,))

Object = dict[str, Any]


def claim(*devices: HeldDevice) -> ToldClaim:
    (found,) = told_claims([replace(ENTRY, devices=devices or (MADE,))], era(), held_kinds())
    return found


def stored(*told: Object, allocated: tuple[HeldDevice, ...] = (MADE,)) -> Object:
    results = [
        {"driver": DRIVER_NAME, "pool": held.pool, "device": held.device}
        | ({"shareID": held.share_id} if held.share_id else {})
        for held in allocated
    ]
    return {"status": {"allocation": {"devices": {"results": results}}, "devices": list(told)}}


def test_only_claims_that_are_prepared_in_this_boot_and_known_by_name_have_something_to_tell() -> None:
    silent = (
        replace(ENTRY, state="preparing"),
        replace(ENTRY, state="releasing"),
        replace(ENTRY, boot_id="another"),
        replace(ENTRY, rebuilt=True),
        replace(ENTRY, devices=()),
    )
    assert list(told_claims(silent, era(), held_kinds())) == []
    assert [found.uid for found in told_claims([*silent, ENTRY], era(), held_kinds())] == ["uid"]


def test_whole_gpus_static_partitions_and_what_has_no_uuid_yet_are_not_told() -> None:
    others = (
        replace(MADE, device="gpu-0000-8a-00-0", kind="whole", record={}),
        replace(MADE, device="gpu-0000-8a-00-0-static-1g-10gb-6", kind="static"),
        replace(MADE, **made(replace(RECORD, uuid=""))),
    )
    assert [device.device for device in claim(*others, MADE).devices] == [MADE.device]
    assert list(told_claims([replace(ENTRY, devices=others)], era(), held_kinds())) == []


def test_an_entry_names_the_device_as_the_allocation_does_and_what_it_is() -> None:
    shared = replace(MADE, share_id="5f0e")
    (told,) = statuses_to_apply(claim(shared), stored(allocated=(shared,)), NOW)
    (condition,) = told.pop("conditions")
    assert told == {
        "driver": DRIVER_NAME,
        "pool": "pool",
        "device": MADE.device,
        "shareID": "5f0e",
        "data": {"uuid": "MIG-1", "parentUUID": "GPU-1", "profile": "1g.10gb"},
    }
    assert (condition["type"], condition["status"], condition["lastTransitionTime"]) == ("Ready", "True", NOW)


def test_a_share_says_what_its_containers_are_held_to() -> None:
    share, memory = ShareRecord("gpu", "TimeSlicing", 1), MemoryRecord(1 << 30, 2 << 30, to_free=True)
    held = replace(MADE, device="gpu-0000-8a-00-0-ts-4", kind="whole", record={}, share=share)
    for limits, told in (
        (None, {}),
        (memory, {"memoryGuaranteedBytes": 1 << 30, "memoryLimitBytes": 2 << 30}),
    ):
        (device,) = claim(replace(held, memory=limits)).devices
        assert device.data == {
            "uuid": "GPU-1",
            "sharing": "time-slicing",
            "interval": "Default",
            "shares": 1,
            **told,
        }


def test_what_is_told_already_is_not_told_again_whenever_that_was() -> None:
    told = statuses_to_apply(claim(), stored(), EARLIER)
    assert statuses_to_apply(claim(), stored(*told), NOW) == []


def test_another_uuid_is_told_and_the_time_of_the_condition_stays() -> None:
    (before,) = statuses_to_apply(claim(), stored(), EARLIER)
    before["data"] = {**before["data"], "uuid": "MIG-old"}
    (told,) = statuses_to_apply(claim(), stored(before), NOW)
    assert told["data"]["uuid"] == "MIG-1"
    assert told["conditions"][0]["lastTransitionTime"] == EARLIER


def test_a_missing_condition_is_told() -> None:
    (before,) = statuses_to_apply(claim(), stored(), EARLIER)
    before["conditions"] = [{**before["conditions"][0], "status": "False"}]
    (told,) = statuses_to_apply(claim(), stored(before), NOW)
    assert told["conditions"][0]["lastTransitionTime"] == NOW


def test_one_missing_device_tells_all_since_an_apply_removes_what_it_leaves_out() -> None:
    second = replace(MADE, device="gpu-0000-8a-00-0-mig-1g-10gb-5")
    both = stored(allocated=(MADE, second))
    (first, _) = statuses_to_apply(claim(MADE, second), both, EARLIER)
    told = statuses_to_apply(claim(MADE, second), stored(first, allocated=(MADE, second)), NOW)
    assert [entry["device"] for entry in told] == [MADE.device, second.device]


def test_a_device_that_is_not_allocated_any_more_is_not_told() -> None:
    gone = replace(MADE, device="gpu-0000-8a-00-0-mig-1g-10gb-5")
    (told,) = statuses_to_apply(claim(MADE, gone), stored(), NOW)
    assert told["device"] == MADE.device
    assert statuses_to_apply(claim(), {"status": {}}, NOW) == []
    assert statuses_to_apply(claim(), {}, NOW) == []
