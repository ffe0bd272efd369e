"""What a claim's status has to tell of partitions follows from the journal and from what it tells already."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kubeletplugin.reports.device_status import ClaimStatus, Observed, claim_statuses, statuses_to_apply
from tests.clusters import Object
from tests.gpus import DRIVER_NAME, Health
from tests.kubeletplugin.held import held_kinds, made
from tests.kubeletplugin.reports import memory_claims
from tests.kubeletplugin.reports.memory_claims import GIB, share
from tests.plugin import DeviceMemory, Entry, HeldDevice, PartitionRecord, ShareRecord

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
RECORD = PartitionRecord("1g.10gb", 19, 6, 1, True, 9, 0, "MIG-1")
MADE = HeldDevice(
    "gpu", "pool", "gpu-0000-8a-00-0-mig-1g-10gb-6", "0000:8a:00.0", "GPU-1", "cdi", **made(RECORD)
)
ENTRY = Entry("uid", "team", "train", "prepared", 7, (MADE,))

WELL = Observed(
    held_kinds(),
    healths={
        ("pool", MADE.device): Health("Healthy"),
        ("pool", "gpu-0000-8a-00-0-ts-4"): Health("Healthy"),
        ("pool", memory_claims.DEVICE): Health("Healthy"),
    },
)


def claim(*devices: HeldDevice) -> ClaimStatus:
    (found,) = claim_statuses([replace(ENTRY, devices=devices or (MADE,))], WELL)
    return found


def stored(*told: Object, allocated: tuple[HeldDevice, ...] = (MADE,)) -> Object:
    results = [
        {"driver": DRIVER_NAME, "pool": held.pool, "device": held.device}
        | ({"shareID": held.share_id} if held.share_id else {})
        for held in allocated
    ]
    return {"status": {"allocation": {"devices": {"results": results}}, "devices": list(told)}}


def test_only_claims_that_are_prepared_and_known_by_name_have_something_to_tell() -> None:
    silent = (
        replace(ENTRY, state="preparing"),
        replace(ENTRY, state="releasing"),
        replace(ENTRY, state="lost"),
        replace(ENTRY, devices=()),
    )
    assert list(claim_statuses(silent, WELL)) == []
    assert [found.uid for found in claim_statuses([*silent, ENTRY], WELL)] == ["uid"]


def test_what_another_driver_prepared_and_a_kind_of_a_newer_version_are_not_told() -> None:
    others = (
        replace(MADE, device="gpu-0000-8a-00-0", kind="whole", record={}, published_as="gpu-0"),
        replace(MADE, device="gpu-0000-8a-00-0-beam", kind="beam", record={}),
    )
    assert [device.device for device in claim(*others, MADE).devices] == [MADE.device]
    assert list(claim_statuses([replace(ENTRY, devices=others)], WELL)) == []


def test_a_device_that_several_requests_look_at_is_one_in_the_status() -> None:
    (told,) = claim(MADE, replace(MADE, request="other", admin_access=True)).devices
    assert told.key == (DRIVER_NAME, "pool", MADE.device, "")


SOUND = Health("Healthy")
ILL = Health("Unhealthy", "it fell off the bus", "GpuLost")
DOUBT = Health("Unknown", "no right", "Unmonitored")


def ready(health: Health, *, fault: str = "", before: Object | None = None, seen: bool = True) -> Object:
    """The condition that is written for a device that is so."""
    healths = {("pool", MADE.device): health} if seen else {}
    known = Observed(held_kinds(), {("uid", "cdi"): DeviceMemory(fault)}, healths)
    (found,) = claim_statuses([ENTRY], known)
    there = {"driver": DRIVER_NAME, "pool": "pool", "device": MADE.device, "conditions": [before]}
    (entry,) = found.devices[0].status(there if before else {}, NOW)["conditions"]
    return dict(entry)


def test_an_ill_device_is_not_ready_with_the_reason_and_the_words_of_its_health() -> None:
    nameless = [ready(health) for health in (Health("Unhealthy", "gone"), Health("Unknown", "busy"))]
    assert [(one["status"], one["reason"]) for one in nameless] == [("False", "Unhealthy"), ("Unknown",) * 2]
    told = ready(ILL)
    assert (told["status"], told["reason"], told["message"]) == ("False", "GpuLost", "it fell off the bus")
    well = ready(SOUND, before={**told, "lastTransitionTime": EARLIER})
    assert (well["status"], well["reason"], well["lastTransitionTime"]) == ("True", "PartitionMade", NOW)


def test_what_is_wrong_for_certain_comes_before_a_limit_and_a_limit_before_doubt() -> None:
    assert ready(ILL, fault="not held")["reason"] == "GpuLost"
    assert ready(DOUBT, fault="not held")["reason"] == "MemoryLimitNotHeld"
    assert ready(DOUBT)["status"] == "Unknown"


def test_what_the_status_says_of_a_device_stays_until_somebody_looks_at_it() -> None:
    ill = {**ready(ILL), "lastTransitionTime": EARLIER}
    assert ready(SOUND, seen=False, before=ill) == ill
    assert ready(SOUND, seen=False)["status"] == "True", "nobody has said anything of it"
    held = {**ready(SOUND, fault="not held"), "lastTransitionTime": EARLIER}
    assert ready(SOUND, seen=False, before=held)["status"] == "True", "that is known without a look"


def test_the_number_of_an_active_fabric_partition_is_told_but_not_to_those_who_look_on() -> None:
    known = replace(WELL, fabric_partition=lambda _entry: 3)
    both = replace(
        ENTRY, devices=(MADE, replace(MADE, device="gpu-0000-8a-00-0", kind="whole", admin_access=True))
    )
    (found,) = claim_statuses([both], known)
    assert [device.data.get("fabricPartition") for device in found.devices] == [3, None]


def test_no_device_has_more_data_than_the_api_takes() -> None:
    many = tuple(f"0000:{bus:02x}:00.0" for bus in range(1, 255))
    record = {"group": 7, "device_ids": [0x2330] * 1000}
    held = replace(
        MADE, device="gpu-0000-8a-00-0-vfio", kind="passthrough", record=record, more_gpus=many * 3
    )
    (told,) = claim(held).devices
    assert len(json.dumps(told.data, separators=(",", ":"))) <= 10 * 1024
    assert told.data["pciBusID"] == "0000:8a:00.0"


def test_an_entry_names_the_device_as_the_allocation_does_and_what_it_is() -> None:
    shared = replace(MADE, share_id="5f0e")
    (told,) = statuses_to_apply(claim(shared), stored(allocated=(shared,)), NOW)
    (condition,) = told.pop("conditions")
    assert told == {
        "driver": DRIVER_NAME,
        "pool": "pool",
        "device": MADE.device,
        "shareID": "5f0e",
        "data": {"uuid": "MIG-1", "pciBusID": "0000:8a:00.0", "parentUUID": "GPU-1", "profile": "1g.10gb"},
    }
    assert (condition["type"], condition["status"], condition["lastTransitionTime"]) == ("Ready", "True", NOW)


SLICED = {"sharing": "time-slicing", "interval": "Default", "shares": 1}
LONG = {"sharing": "time-slicing", "interval": "Long"}
HELD = LONG | {"interval": "Default", "memoryBytes": 10 * GIB, "memoryLimitBytes": 10 * GIB}
SERVED = {"sharing": "mps", "activeThreadPercentage": 25, "pinnedMemoryMiB": 20276, "shares": 1}


@pytest.mark.parametrize(
    ("share", "limit_bytes", "told"),
    [
        (ShareRecord("gpu", "TimeSlicing", 1), None, SLICED),
        (ShareRecord("gpu", "TimeSlicing", 0, interval="Long"), None, LONG),
        (ShareRecord("gpu", "TimeSlicing", 0, 10 * GIB), 10 * GIB, HELD),
        (ShareRecord("gpu", "MPS", 1, 0, "", 25, 20276), None, SERVED),
    ],
)
def test_a_share_says_how_it_is_shared_and_what_its_containers_are_held_to(
    share: ShareRecord, limit_bytes: int | None, told: Object
) -> None:
    held = replace(MADE, device="gpu-0000-8a-00-0-ts-4", kind="whole", record={}, share=share)
    (device,) = claim(replace(held, memory_limit_bytes=limit_bytes)).devices
    assert device.data == {"uuid": "GPU-1", "pciBusID": "0000:8a:00.0", **told}
    assert device.ready.reason == "ShareReady"


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


SHARE = share("a")


def told(fault: str = "", used_bytes: int | None = None, before: Object | None = None, now: str = NOW) -> Any:
    """The entry to apply for a share with a limit, None where the one before tells it already."""
    memory = {("a", SHARE.cdi_device): DeviceMemory(fault, used_bytes)}
    now_known = replace(WELL, memory=memory)
    (found,) = claim_statuses([memory_claims.claim("a", SHARE)], now_known)
    api = stored(*([before] if before else []), allocated=(SHARE,))
    return next(iter(statuses_to_apply(found, api, now)), None)


def test_a_limit_that_is_not_held_makes_the_device_not_ready_and_again_ready_when_it_is() -> None:
    well = told(now=EARLIER)
    lost = told("NVML does not hold it", before=well)
    (condition,) = lost["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "MemoryLimitNotHeld")
    assert (condition["message"], condition["lastTransitionTime"]) == ("NVML does not hold it", NOW)
    (other,) = told("the GPU hangs", before=lost, now="later")["conditions"]
    assert (other["message"], other["lastTransitionTime"]) == ("the GPU hangs", NOW), "no transition"
    assert told(before=lost)["conditions"][0]["status"] == "True"


def test_used_memory_is_told_while_it_is_known_and_little_that_changed_is_not() -> None:
    before = told(used_bytes=1000)
    assert before["data"]["memoryUsedBytes"] == 1000
    assert told(used_bytes=1050, before=before) is None
    assert told(used_bytes=1051, before=before)["data"]["memoryUsedBytes"] == 1051
    assert told("NVML does not hold it", 1010, before)["data"]["memoryUsedBytes"] == 1000
    assert "memoryUsedBytes" not in told(before=before)["data"]
    before["data"]["memoryUsedBytes"] = "much"
    assert told(used_bytes=1000, before=before)["data"]["memoryUsedBytes"] == 1000


def test_what_is_told_already_is_not_told_again_and_another_uuid_is_no_transition() -> None:
    (before,) = statuses_to_apply(claim(), stored(), EARLIER)
    assert statuses_to_apply(claim(), stored(before), NOW) == []
    before["data"] = {**before["data"], "uuid": "MIG-old"}
    (again,) = statuses_to_apply(claim(), stored(before), NOW)
    assert (again["data"]["uuid"], again["conditions"][0]["lastTransitionTime"]) == ("MIG-1", EARLIER)
