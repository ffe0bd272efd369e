"""The kind of configuration that NVIDIA's driver does not have is read strictly, like those that it has."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.opaque import (
    Burst,
    GpuConfig,
    MalformedConfig,
    MemoryDivision,
    MpsSettings,
    decode_any,
    decode_for,
)
from driver.errors import ClaimRefused

HEAD = {"apiVersion": "resource.gpu-dra.dev/v1alpha1", "kind": "SharedGpuConfig"}
GIB = 1 << 30
NAME = "cannot be the name of a container"
EITHER = "must have either factor or toFree: true"
FACTOR = "must be a number from 1 to 1000"


def decoded(memory: Any, *, of_class: bool = True) -> MemoryDivision | None:
    config = decode_for({**HEAD, "memory": memory}, "GpuConfig", "a GPU", of_class=of_class)
    assert isinstance(config, GpuConfig)
    return config.memory


def errors(document: Any, *, of_class: bool = True) -> tuple[str, ...]:
    with pytest.raises(MalformedConfig) as refused:
        decode_any(document, "at", of_class=of_class)
    return refused.value.errors


def test_it_says_of_sharing_what_a_gpu_config_says() -> None:
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}
    config = decode_any({**HEAD, "sharing": sharing})

    assert config == GpuConfig("MPS", mps=MpsSettings(50))
    assert config == decode_any(
        {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
    )


def test_it_goes_wherever_a_gpu_config_goes_and_nowhere_else() -> None:
    assert decode_for(HEAD, "GpuConfig", "a GPU") == GpuConfig()
    for wanted in ("MigDeviceConfig", "VfioDeviceConfig"):
        with pytest.raises(ClaimRefused, match=f"is a SharedGpuConfig, but .* use kind {wanted}"):
            decode_for(HEAD, wanted, "something else")


def test_of_a_partition_it_says_why_its_memory_cannot_be_divided() -> None:
    with pytest.raises(ClaimRefused, match="a partition, whose memory it cannot divide: use kind Mig"):
        decode_for({**HEAD, "memory": {"each": "1Gi"}}, "MigDeviceConfig", "a partition")


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (None, None),
        ({}, MemoryDivision()),
        ({"parts": None, "each": None, "burst": None}, MemoryDivision()),
        ({"parts": {"b": "6Gi", "a": 536870912}}, MemoryDivision((("a", GIB // 2), ("b", 6 * GIB)))),
        ({"each": "4Gi"}, MemoryDivision(each_bytes=4 * GIB)),
        ({"burst": {"factor": 2}}, MemoryDivision(burst=Burst(Fraction(2)))),
        ({"burst": {"factor": 1.1, "toFree": False}}, MemoryDivision(burst=Burst(Fraction(11, 10)))),
        ({"burst": {"toFree": True}}, MemoryDivision(burst=Burst(to_free=True))),
    ],
)
def test_every_field_of_memory_is_read(memory: Any, expected: MemoryDivision | None) -> None:
    assert decoded(memory) == expected


@pytest.mark.parametrize(
    ("memory", "wrong"),
    [
        ("6Gi", ("at.memory: must be an object",)),
        ([], ("at.memory: must be an object",)),
        ({"limit": "6Gi"}, ("at.memory.limit: unknown field",)),
        ({"parts": ["6Gi"]}, ("at.memory.parts: must be an object",)),
        ({"parts": {"main": "511Mi"}}, ("at.memory.parts.main: must be at least 512Mi",)),
        ({"parts": {"main": -1}}, ("at.memory.parts.main: must be at least 512Mi",)),
        ({"parts": {"Main": "1Gi"}}, (f"at.memory.parts.Main: {NAME}",)),
        ({"parts": {"": "1Gi"}}, (f"at.memory.parts.: {NAME}",)),
        ({"parts": {"a/b": "1Gi"}}, (f"at.memory.parts.a/b: {NAME}",)),
        ({"parts": {"a\n": "1Gi"}}, (f"at.memory.parts.a\n: {NAME}",)),
        ({"parts": {"x" * 64: "1Gi"}}, (f"at.memory.parts.{'x' * 64}: {NAME}",)),
        ({"each": 0}, ("at.memory.each: must be at least 512Mi",)),
        (
            {"each": True, "more": 1},
            (
                "at.memory.each: 'True' is not a quantity such as 80Gi, 1500m or 1e3",
                "at.memory.more: unknown field",
            ),
        ),
        ({"burst": 2}, ("at.memory.burst: must be an object",)),
        ({"burst": {}}, (f"at.memory.burst: {EITHER}",)),
        ({"burst": {"toFree": False}}, (f"at.memory.burst: {EITHER}",)),
        ({"burst": {"toFree": True, "factor": 2}}, (f"at.memory.burst: {EITHER}",)),
        ({"burst": {"factor": 0.5}}, (f"at.memory.burst.factor: {FACTOR}",)),
        ({"burst": {"factor": 10**400}}, (f"at.memory.burst.factor: {FACTOR}",)),
        ({"burst": {"factor": float("nan")}}, (f"at.memory.burst.factor: {FACTOR}",)),
        ({"burst": {"factor": float("inf")}}, (f"at.memory.burst.factor: {FACTOR}",)),
        ({"burst": {"factor": True}}, (f"at.memory.burst.factor: {FACTOR}",)),
        ({"burst": {"factor": "2"}}, (f"at.memory.burst.factor: {FACTOR}",)),
        ({"burst": {"factor": 2, "max": 1}}, ("at.memory.burst.max: unknown field",)),
    ],
)
def test_what_is_wrong_is_said_with_its_path(memory: Any, wrong: tuple[str, ...]) -> None:
    assert errors({**HEAD, "memory": memory}) == wrong


def test_all_errors_come_together() -> None:
    memory = {"parts": {"A": "1Ki"}, "each": "x", "burst": {"factor": 0}, "x": 1}

    assert errors({**HEAD, "sharing": {"strategy": "Fair"}, "memory": memory, "y": 1}, of_class=False) == (
        "at.sharing.strategy: must be one of TimeSlicing, MPS",
        f"at.memory.parts.A: {NAME}",
        "at.memory.parts.A: must be at least 512Mi",
        "at.memory.each: 'x' is not a quantity such as 80Gi, 1500m or 1e3",
        "at.memory.burst: is allowed only in a DeviceClass: use a class that sets it, or leave it out",
        f"at.memory.burst.factor: {FACTOR}",
        "at.memory.x: unknown field",
        "at.y: unknown field",
    )


def test_a_claim_cannot_allow_itself_a_burst() -> None:
    for burst in ({"factor": 1}, {"toFree": True}):
        with pytest.raises(MalformedConfig, match=r"memory\.burst: is allowed only in a DeviceClass"):
            decoded({"burst": burst}, of_class=False)


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        (
            {**HEAD, "apiVersion": "resource.nvidia.com/v1beta1"},
            "at.apiVersion: must be one of resource.gpu-dra.dev/v1alpha1",
        ),
        ({**HEAD, "kind": "GpuConfig"}, "at.apiVersion: must be one of resource.nvidia.com/v1beta1"),
        ({"kind": "SharedGpuConfig"}, "at.apiVersion: is required and must be resource.gpu-dra.dev/v1alpha1"),
    ],
)
def test_each_kind_has_its_own_version(document: dict[str, Any], wrong: str) -> None:
    assert errors(document) == (wrong,)


def test_a_config_of_nvidias_divides_no_memory() -> None:
    document = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "memory": {}}

    assert errors(document) == ("at.memory: unknown field",)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("6Gi"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["parts", "each", "burst", "factor", "toFree", "main", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_whatever_a_claim_says_of_memory_is_decoded_or_refused(memory: Any, of_class: bool) -> None:
    try:
        found = decoded(memory, of_class=of_class)
    except MalformedConfig as refused:
        assert refused.errors
        assert not refused.retryable
        return
    if found is not None:
        assert all(part >= GIB // 2 for _, part in found.parts)
        assert found.burst is None or of_class
        assert found.burst is None or (found.burst.factor is None) == found.burst.to_free


def test_what_says_nothing_of_containers_is_a_burst_alone() -> None:
    burst = {"burst": {"toFree": True}}
    for memory, alone in ((burst, True), ({**burst, "each": "1Gi"}, False), ({}, False)):
        found = decoded(memory)
        assert found is not None
        assert found.is_burst_alone is alone
