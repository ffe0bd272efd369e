"""The name of a shared device says how it is shared, and an allocation how much it took."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.sharing import Share, Strategy, read_share, shared_suffix, split_shared_suffix
from tests.gpus import ClaimRefused, SharedForm

DRIVER = "gpu.nvidia.com"
DEVICE = "gpu-0000-8a-00-0-mps-4-mem"

strategies: st.SearchStrategy[Strategy] = st.sampled_from(["TimeSlicing", "MPS"])
forms = st.builds(
    SharedForm, strategies, st.none() | st.integers(1, 9999), memory=st.booleans(), fractional=st.booleans()
).filter(lambda form: form.shares is not None or form.memory)
bases = st.sampled_from(
    ["gpu-0000-8a-00-0", "gpu-0000-8a-00-0-mig-1g-10gb-6", "gpu-0000-8a-00-0-static-7g-80gb-0"]
)


@given(bases, forms)
def test_a_suffix_reads_back_and_leaves_the_name_of_what_is_shared(base: str, form: SharedForm) -> None:
    name = base + shared_suffix(form)

    assert split_shared_suffix(name) == (base, form)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)


@pytest.mark.parametrize(
    ("suffix", "form"),
    [
        ("-ts-4", SharedForm("TimeSlicing", 4)),
        ("-mps-4", SharedForm("MPS", 4)),
        ("-mps-mem", SharedForm("MPS", None, memory=True)),
        ("-mps-4-mem", SharedForm("MPS", 4, memory=True)),
        ("-mps-frac-mem", SharedForm("MPS", None, memory=True, fractional=True)),
        ("-ts-frac-10", SharedForm("TimeSlicing", 10, fractional=True)),
    ],
)
def test_suffixes_are_these(suffix: str, form: SharedForm) -> None:
    assert shared_suffix(form) == suffix


@pytest.mark.parametrize(
    "name",
    [
        "gpu-0000-8a-00-0",
        "gpu-0000-8a-00-0-mps-frac",
        "gpu-0000-8a-00-0-ts-04",
        "gpu-0000-8a-00-0-ts-10000",
        "gpu-0000-8a-00-0-ts-4\n",
        "gpu-0000-8a-00-0-mps-mem-4",
        "gpu-0000-8a-00-0-ts-٤",
    ],
)
def test_other_names_are_not_shared(name: str) -> None:
    assert split_shared_suffix(name) == (name, None)


def share(form: SharedForm, **consumed: str) -> Share:
    return read_share(form, consumed, DEVICE, DRIVER)


def test_a_share_is_what_the_form_measures() -> None:
    assert share(SharedForm("MPS", 4), shares="1", memory="0") == Share(1, None)
    assert share(SharedForm("MPS", None, memory=True), memory="5Gi") == Share(None, 5 * 2**30)
    assert share(SharedForm("MPS", 4, memory=True), shares="4", memory="19Gi") == Share(4, 19 * 2**30)
    named = {f"{DRIVER}/shares": "2", "other.com/shares": "9"}
    assert share(SharedForm("TimeSlicing", 4), **named) == Share(2)


@pytest.mark.parametrize(
    ("consumed", "problem"),
    [
        ({}, "shares of .* is missing"),
        ({"shares": "0"}, "is 0, which is not a whole number above zero"),
        ({"shares": "-1"}, "is -1, which is not a whole number above zero"),
        ({"shares": "500m"}, "is 500m, which is not a whole number above zero"),
        ({"shares": "5"}, "was given 5 shares of .*, which has only 4"),
        ({"shares": "many"}, "cannot be read"),
        ({"shares": "1"}, "memory of .* is missing"),
        ({"shares": "1", "memory": "0"}, "memory of .* is 0"),
    ],
)
def test_an_allocation_that_took_no_share_is_refused_for_good(consumed: dict[str, str], problem: str) -> None:
    with pytest.raises(ClaimRefused, match=problem) as refused:
        read_share(SharedForm("MPS", 4, memory=True), consumed, DEVICE, DRIVER)

    assert "delete the pod" in str(refused.value)
    assert not refused.value.retryable


@given(st.dictionaries(st.sampled_from(["shares", "memory", "x"]), st.text(max_size=8)))
def test_whatever_was_consumed_is_read_or_refused(consumed: dict[str, str]) -> None:
    try:
        found = share(SharedForm("MPS", 4, memory=True), **consumed)
    except ClaimRefused:
        return
    assert found.shares is not None
    assert 1 <= found.shares <= 4
    assert found.memory_bytes is not None
    assert found.memory_bytes > 0
