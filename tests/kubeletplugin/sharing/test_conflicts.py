"""Shares that do not go together are refused, and no claim decides on the time-slice of others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.sharing.shares import interval_of, refuse_conflicts
from tests.gpus import DeviceHeld
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import GIB, class_slicing, config, slicing
from tests.plugin import Entry, HeldDevice, ShareRecord

GPU, PCI = "gpu-0000-01-00-0", "0000:01:00.0"


def held(form: str = "ts-4", *, shares: int = 1, memory: int = 0, interval: str = "") -> HeldDevice:
    record = ShareRecord(GPU, "TimeSlicing", shares, memory, interval)
    return HeldDevice("r", "p", f"{GPU}-{form}", PCI, "GPU-1", "cdi", "s", kind="whole", share=record)


def entry(uid: str, *devices: HeldDevice) -> Entry:
    return Entry(uid, "team", f"claim-{uid}", "prepared", 0, devices)


def refused(wanted: list[HeldDevice], *others: Entry, memory: int = 0) -> str:
    """Why they do not go together, as the log has it; empty where they do."""
    try:
        refuse_conflicts("mine", wanted, [memory] * len(wanted), others)
    except DeviceHeld as error:
        assert "team/" not in str(error), "who made the claim must not learn of other namespaces"
        assert "UID" not in str(error)
        return error.logged
    return ""


@given(st.lists(st.integers(1, 4), max_size=4), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_there_are_never_more_shares_than_the_device_has(others: list[int], wanted: list[int]) -> None:
    entries = [entry(str(number), held(shares=taken)) for number, taken in enumerate(others)]
    why = refused([held(shares=taken) for taken in wanted], *entries)
    assert bool(why) == (sum(others) + sum(wanted) > 4)


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 40))
def test_there_is_never_more_memory_than_the_device_has(others: list[int], wanted: int) -> None:
    entries = [
        entry(str(number), held("mps-mem", shares=0, memory=taken * GIB))
        for number, taken in enumerate(others)
    ]
    why = refused([held("mps-mem", shares=0, memory=wanted * GIB)], *entries, memory=80 * GIB)
    assert bool(why) == (sum(others) + wanted > 80)


def test_who_has_the_rest_is_named_in_the_log_alone() -> None:
    why = refused([held(shares=2)], entry("b", held(shares=2)), entry("a", held()))
    assert "has 4 shares, but with this claim 5 would be used" in why
    assert "(retryable)" in why
    assert why.endswith("[held by team/claim-a (UID a), team/claim-b (UID b)]")


def test_the_claims_own_and_those_that_only_look_on_do_not_count() -> None:
    mine = entry("mine", held(shares=4))
    looking = entry("b", replace(held(), admin_access=True, share=None))
    other = replace(held(shares=4), device="gpu-0000-02-00-0-ts-4")
    assert refused([held(shares=4)], entry("a", other)) == ""
    assert refused([held(shares=4)], mine, looking) == ""
    assert refused([replace(held(), admin_access=True, share=None)], entry("d", held(shares=4))) == ""


def test_who_has_all_of_a_fractional_device_is_alone() -> None:
    alone = replace(held("mps-frac-10"), share=None)
    part = held("mps-frac-10", shares=3)
    assert "can only be used by one claim at a time, and another claim has it, too" in refused(
        [part], entry("a", alone)
    )
    assert refused([alone], entry("b", part)).endswith("[held by team/claim-b (UID b)]")
    assert "can only be used by one claim at a time, and this claim has it, too" in refused([alone, part])
    assert refused([alone]) == ""
    among_its_pods = held("mps-frac-10", shares=0)
    assert "another claim has it, too" in refused([part], entry("a", among_its_pods))


@pytest.mark.parametrize(
    ("intervals", "wanted"),
    [(("",), "Default"), (("", "Long", "Default"), "Long"), (("Medium", "Short", "Long"), "Short")],
)
def test_the_time_slice_is_the_shortest_that_a_class_asks_for(
    intervals: tuple[str, ...], wanted: str
) -> None:
    records = [one.share for one in (held(interval=word) for word in intervals) if one.share]
    assert interval_of(records) == interval_of(reversed(records)) == wanted


def test_a_claim_that_wants_no_other_time_slice_gets_that_of_its_class(node: FakeNode) -> None:
    wishes = (slicing("Long"), config({"strategy": "TimeSlicing"}), config(None))
    for number, wish in enumerate(wishes):
        given = [*class_slicing("Long"), *wish]
        node.prepared_shares(f"c-{number}", node.shared("ts-4", number), config=given)
        assert node.interval(number) == "Long"
