"""Opaque configuration is decoded strictly: all errors at once, each with its path, never a crash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.errors import ClaimRefused
from driver.opaque import GpuConfig, MpsSettings, decode_gpu_config

HEAD = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}


def test_an_empty_config_means_one_claim_alone() -> None:
    assert decode_gpu_config(HEAD) == GpuConfig()


def test_an_omitted_interval_means_default_also_beside_an_empty_object() -> None:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {}}

    assert decode_gpu_config({**HEAD, "sharing": sharing}) == GpuConfig("TimeSlicing", "Default")


def test_every_field_of_mps_is_read() -> None:
    mps = {
        "defaultActiveThreadPercentage": 50,
        "defaultPinnedDeviceMemoryLimit": "8Gi",
        "defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"},
        "multiUser": True,
    }

    assert decode_gpu_config({**HEAD, "sharing": {"strategy": "MPS", "mpsConfig": mps}}) == GpuConfig(
        "MPS", "Default", MpsSettings(50, 8 << 30, (("0", 1 << 30),), True)
    )


def test_all_errors_come_together_with_their_paths() -> None:
    document = {
        "apiVersion": "resource.nvidia.com/v2",
        "kind": "GpuConfig",
        "colour": "red",
        "sharing": {
            "strategy": "MPS",
            "timeSlicingConfig": {"interval": "Tiny"},
            "mpsConfig": {"defaultActiveThreadPercentage": True, "defaultPinnedDeviceMemoryLimit": "1Ki"},
        },
    }

    with pytest.raises(ClaimRefused) as refused:
        decode_gpu_config(document)

    for part in (
        "apiVersion: must be one of",
        "colour: unknown field",
        "sharing.timeSlicingConfig: goes with strategy TimeSlicing only",
        "sharing.timeSlicingConfig.interval: must be one of Default, Short, Medium, Long",
        "sharing.mpsConfig.defaultActiveThreadPercentage: must be a whole number from 0 to 100",
        "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: must be at least 1Mi",
        "(permanent)",
    ):
        assert part in str(refused.value)


def test_a_config_for_another_kind_of_device_is_named() -> None:
    with pytest.raises(
        ClaimRefused, match="is a MigDeviceConfig, but the device it applies to is a whole GPU"
    ):
        decode_gpu_config({**HEAD, "kind": "MigDeviceConfig"})


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["sharing", "strategy", "mpsConfig", "timeSlicingConfig", "interval", "kind", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "sharing", "x"]), json_values))
def test_whatever_a_claim_says_is_decoded_or_refused(document: dict[str, Any]) -> None:
    try:
        decode_gpu_config({**HEAD, **document})
    except ClaimRefused as refused:
        assert not refused.retryable
