"""A claim is read for what is ours in it, and refused in words when it is not what it should be."""

from typing import Any

import pytest

from driver.claims.allocation import AllocatedDevice, ClaimConfig, read_claim
from tests.clusters import Object
from tests.gpus import ClaimBlocked, ClaimRefused

SHARE = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
OURS = "gpu.nvidia.com"


def stored(**status: Any) -> Object:
    return {"metadata": {"namespace": "team", "name": "train", "uid": "u-1"}, "status": status}


def allocated(*results: Object, config: list[Object] | None = None) -> Object:
    return stored(allocation={"devices": {"results": list(results), "config": config or []}})


def result(request: str = "gpu", driver: str = OURS, **more: Any) -> Object:
    device = {"pool": "n/gpu.nvidia.com", "device": "gpu-0000-01-00-0"}
    return {"request": request, "driver": driver, **device, **more}


def config(source: str, value: int, *requests: str, driver: str = OURS) -> Object:
    opaque = {"driver": driver, "parameters": {"v": value}}
    return {"source": source, "requests": list(requests), "opaque": opaque}


def test_results_of_other_drivers_in_the_same_claim_are_skipped() -> None:
    claim = read_claim(allocated(result("nic", "dra.net"), result("gpu")), "u-1", OURS)

    assert [device.request for device in claim.devices] == ["gpu"]


@pytest.mark.parametrize("share_id", ["", "s", SHARE.upper() + "\n", "../../etc", [None], 7, {}])
def test_a_share_id_that_is_no_uuid_is_refused(share_id: Any) -> None:
    with pytest.raises(ClaimRefused, match="shareID is not a UUID"):
        read_claim(allocated(result("gpu", shareID=share_id)), "u-1", OURS)


def test_share_admin_access_and_consumed_capacity_are_kept() -> None:
    told = result("a/b", shareID=SHARE, adminAccess=True, consumedCapacity={"memory": "1Gi"})
    claim = read_claim(allocated(told), "u-1", OURS)

    assert claim.devices == (
        AllocatedDevice("a/b", "n/gpu.nvidia.com", "gpu-0000-01-00-0", SHARE, True, (("memory", "1Gi"),)),
    )
    assert claim.devices[0].top_request == "a"


def test_class_configs_come_before_claim_configs_and_later_ones_win() -> None:
    entries = [config("FromClaim", 1), config("FromClass", 2), config("FromClaim", 3), config("FromClass", 4)]
    claim = read_claim(allocated(result(), config=entries), "u-1", OURS)

    assert [found.parameters["v"] for found in claim.configs_of(claim.devices[0])] == [2, 4, 1, 3]


@pytest.mark.parametrize(
    ("requests", "applies"),
    [((), True), (("gpu",), True), (("gpu/large",), True), (("gpu/small",), False), (("other",), False)],
)
def test_a_config_name_matches_the_request_and_its_subrequests(
    requests: tuple[str, ...], applies: bool
) -> None:
    assert (
        ClaimConfig("FromClaim", requests, {}).applies_to(AllocatedDevice("gpu/large", "p", "d")) is applies
    )


@pytest.mark.parametrize(
    ("written", "names"),
    [([{"requests": ["gpu"]}], True), ([{}], False), ([{"requests": ["gpu"]}, {}], False), ([], False)],
)
def test_a_config_whose_requests_the_scheduler_left_out_names_them_still(
    written: list[Object], names: bool
) -> None:
    one = config("FromClaim", 1)
    spec = {"devices": {"config": [{"opaque": one["opaque"], **more} for more in written]}}
    claim = read_claim({**allocated(result(), config=[one]), "spec": spec}, "u-1", OURS)

    assert [found.names_requests for found in claim.configs] == [names]


def test_configs_of_other_drivers_are_not_ours_to_judge() -> None:
    claim = read_claim(allocated(result(), config=[config("FromClaim", 1, driver="dra.net")]), "u-1", OURS)

    assert claim.configs == ()


def test_a_replaced_claim_is_refused_for_good_with_both_uids() -> None:
    with pytest.raises(
        ClaimRefused,
        match=r"team/train has UID u-1, not UID u-2: it was deleted and created again.*\(permanent\)",
    ):
        read_claim(allocated(result()), "u-2", OURS)


def test_a_claim_that_is_not_allocated_may_be_later() -> None:
    with pytest.raises(ClaimBlocked, match=r"team/train is not allocated.*\(retryable\)"):
        read_claim(stored(), "u-1", OURS)


@pytest.mark.parametrize(
    "broken",
    [{}, {"metadata": None}, {"metadata": {"uid": "u-1"}}, allocated({"driver": OURS}), allocated(7)],  # type: ignore[arg-type] # hostile on purpose
    ids=["empty", "null", "nameless", "half a result", "a number"],
)
def test_a_malformed_object_is_refused_not_a_crash(broken: Object) -> None:
    with pytest.raises(ClaimRefused, match=r"is not a resource\.k8s\.io/v1 ResourceClaim"):
        read_claim(broken, "u-1", OURS)


def exactly(request: str) -> list[Object]:
    return [{"name": request, "exactly": {"deviceClassName": "tier-a"}}]


EITHER = [{"name": name, "deviceClassName": f"tier-{name}"} for name in ("large", "small")]


@pytest.mark.parametrize(
    ("request_of_result", "requests", "device_class"),
    [
        ("gpu", exactly("gpu"), "tier-a"),
        ("gpu/small", [{"name": "gpu", "firstAvailable": EITHER}], "tier-small"),
        ("gpu", exactly("other"), ""),
        ("gpu", [{"name": "gpu"}], ""),
        ("gpu", None, ""),
    ],
)
def test_a_device_has_the_class_that_its_request_names(
    request_of_result: str, requests: Any, device_class: str
) -> None:
    claim = allocated(result(request_of_result))
    claim["spec"] = {"devices": {"requests": requests}}

    (device,) = read_claim(claim, "u-1", OURS).devices

    assert device.device_class == device_class
