"""The field ``shared`` of a rule is read strictly, and every error in it is told with its path."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from driver.kinds.sharing.field import read_shared
from tests.gpus import SharedOffer

GIB = 2**30


def read(text: str) -> tuple[tuple[SharedOffer, ...], list[str]]:
    errors: list[str] = []
    return read_shared(yaml.safe_load(text), "shared", errors), errors


@pytest.mark.parametrize(
    ("text", "offer"),
    [
        ("{strategy: TimeSlicing, shares: 4}", SharedOffer("TimeSlicing", 4)),
        ("{strategy: MPS, shares: 48}", SharedOffer("MPS", 48)),
        ("{strategy: MPS, memory: {step: 5Gi}}", SharedOffer("MPS", None, 5 * GIB)),
        ("{strategy: MPS, memory: {step: 1048576}}", SharedOffer("MPS", None, 2**20)),
        ("{strategy: MPS, shares: 8, memory: {step: 1Gi}}", SharedOffer("MPS", 8, GIB)),
        (
            "{strategy: MPS, memory: {step: 1Gi}, fractional: true}",
            SharedOffer("MPS", None, GIB, fractional=True),
        ),
    ],
)
def test_every_way_to_write_it_is_understood(text: str, offer: SharedOffer) -> None:
    assert read(text) == ((offer,), [])
    assert read(f"[{text}]") == ((offer,), [])


def test_both_strategies_can_be_offered_at_once() -> None:
    offers, errors = read("[{strategy: MPS, shares: 4}, {strategy: TimeSlicing, shares: 8}]")

    assert offers == (SharedOffer("MPS", 4), SharedOffer("TimeSlicing", 8))
    assert errors == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("null", "shared: must be a mapping with strategy"),
        ("[]", "shared: must be a mapping, or a list of one or two"),
        ("[MPS]", "shared[0]: must be a mapping with strategy"),
        (
            "[{strategy: MPS, shares: 2}, {strategy: TimeSlicing, shares: 2}, {strategy: MPS, shares: 4}]",
            "shared: must be a mapping, or a list of one or two",
        ),
        (
            "[{strategy: MPS, shares: 2}, {strategy: MPS, shares: 4}]",
            "shared: must not have one strategy twice",
        ),
        (
            "[{strategy: MPS, shares: 2}, {strategy: TimeSlicing}]",
            "shared[1]: must have shares, memory or both",
        ),
        ("{shares: 4}", "shared.strategy: must be one of TimeSlicing, MPS"),
        ("{strategy: [MPS], shares: 4}", "shared.strategy: must be one of"),
        ("{strategy: MPS}", "shared: must have shares, memory or both"),
        ("{strategy: MPS, shares: 4, replicas: 4}", "shared.replicas: unknown field"),
        ("{strategy: MPS, shares: 1}", "shared.shares: must be a number from 2 to 48, since"),
        ("{strategy: TimeSlicing, shares: 1001}", "shared.shares: must be a number from 2 to 1000"),
        ("{strategy: TimeSlicing, shares: true}", "shared.shares: must be a number"),
        ("{strategy: MPS, memory: 5Gi}", "shared.memory: must be a mapping with step"),
        ("{strategy: MPS, memory: {}}", "shared.memory.step: must be an amount of memory such as 5Gi"),
        ("{strategy: MPS, memory: {step: 5GB}}", "shared.memory.step: must be an amount of memory"),
        ("{strategy: MPS, memory: {step: 0}}", "shared.memory.step: must be a multiple of 1Mi"),
        ("{strategy: MPS, memory: {step: 512Ki}}", "shared.memory.step: must be a multiple of 1Mi"),
        ("{strategy: MPS, memory: {step: 1Gi, most: 2Gi}}", "shared.memory.most: unknown field"),
        ("{strategy: MPS, shares: 4, fractional: 1}", "shared.fractional: must be true or false"),
    ],
)
def test_anything_else_is_an_error_with_its_path(text: str, error: str) -> None:
    _, errors = read(text)

    assert len(errors) == 1
    assert errors[0].startswith(error)


def test_all_errors_are_told_at_once() -> None:
    _, errors = read("{strategy: GPU, shares: 0, memory: {step: 1}, fractional: x, y: 1}")

    assert [error.split(":")[0] for error in errors] == [
        "shared.y",
        "shared.strategy",
        "shared.shares",
        "shared.memory.step",
        "shared.fractional",
    ]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("15GiMm-.e", max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("sharestp"), inner),
    max_leaves=15,
)
OFFERS = st.fixed_dictionaries(
    {"strategy": st.sampled_from(["MPS", "TimeSlicing", None])},
    optional={"shares": ANYTHING, "memory": st.fixed_dictionaries({"step": ANYTHING}) | ANYTHING},
)


@given(ANYTHING | OFFERS | st.lists(OFFERS))
def test_whatever_stands_there_is_read_or_refused(value: Any) -> None:
    errors: list[str] = []

    offers = read_shared(value, "shared", errors)

    assert errors or 1 <= len(offers) <= 2
    assert all(one.shares or one.step_bytes for one in offers)
    assert all(error.startswith("shared") for error in errors)
