"""Opaque configuration is decoded strictly: all errors at once, each with its path, never a crash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.opaque import (
    API_VERSION,
    KINDS,
    GpuConfig,
    MalformedConfig,
    MigDeviceConfig,
    MpsSettings,
    VfioDeviceConfig,
    decode_any,
    decode_for,
)
from driver.errors import ClaimRefused

HEAD = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
MIG = {**HEAD, "kind": "MigDeviceConfig"}
VFIO = {**HEAD, "kind": "VfioDeviceConfig"}


def decode_gpu_config(parameters: Any) -> GpuConfig:
    config = decode_for(parameters, "GpuConfig", "a GPU")
    assert isinstance(config, GpuConfig)
    return config


def decode_mig_config(parameters: Any) -> MigDeviceConfig:
    config = decode_for(parameters, "MigDeviceConfig", "a partition")
    assert isinstance(config, MigDeviceConfig)
    return config


def test_a_device_that_takes_no_configuration_refuses_any() -> None:
    with pytest.raises(ClaimRefused, match="applies to a variable, which has no configuration"):
        decode_for({}, "", "a variable")


def test_an_empty_config_means_one_claim_alone() -> None:
    assert decode_gpu_config(HEAD) == GpuConfig()


def test_an_omitted_interval_is_none_also_beside_an_empty_object() -> None:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {}}

    assert decode_gpu_config({**HEAD, "sharing": sharing}) == GpuConfig("TimeSlicing", "")


def test_every_field_of_mps_is_read() -> None:
    mps = {
        "defaultActiveThreadPercentage": 50,
        "defaultPinnedDeviceMemoryLimit": "8Gi",
        "defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"},
        "multiUser": True,
    }

    assert decode_gpu_config({**HEAD, "sharing": {"strategy": "MPS", "mpsConfig": mps}}) == GpuConfig(
        "MPS", "", MpsSettings(50, 8 << 30, (("0", 1 << 30),), True)
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
        "sharing.timeSlicingConfig: is allowed only with strategy TimeSlicing",
        "sharing.timeSlicingConfig.interval: must be one of Default, Short, Medium, Long",
        "sharing.mpsConfig.defaultActiveThreadPercentage: must be a whole number from 0 to 100",
        "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: must be at least 1Mi",
        "(permanent)",
    ):
        assert part in str(refused.value)


def test_a_config_for_another_kind_of_device_is_named() -> None:
    with pytest.raises(ClaimRefused, match="is a MigDeviceConfig, but the device it applies to is a GPU"):
        decode_gpu_config({**HEAD, "kind": "MigDeviceConfig"})


def test_an_empty_config_of_a_partition_means_one_claim_alone() -> None:
    assert decode_mig_config(MIG) == MigDeviceConfig()


def test_time_slicing_of_a_partition_is_accepted_and_asks_for_nothing() -> None:
    config = decode_mig_config({**MIG, "sharing": {"strategy": "TimeSlicing"}})

    assert config == MigDeviceConfig("TimeSlicing", MpsSettings())


def test_every_field_of_mps_is_read_for_a_partition_too() -> None:
    mps = {"defaultActiveThreadPercentage": 25, "defaultPinnedDeviceMemoryLimit": "2Gi", "multiUser": True}

    assert decode_mig_config({**MIG, "sharing": {"strategy": "MPS", "mpsConfig": mps}}) == MigDeviceConfig(
        "MPS", MpsSettings(25, 2 << 30, (), True)
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"colour": "red"}, "colour: unknown field"),
        ({"sharing": {}}, None),
        ({"sharing": "x"}, "sharing: must be an object"),
        ({"sharing": {"mpsConfig": {}}}, "sharing.strategy: is required and must be TimeSlicing or MPS"),
        ({"sharing": {"strategy": "Mps"}}, "sharing.strategy: must be one of TimeSlicing, MPS"),
        (
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}},
            "sharing.timeSlicingConfig: unknown field",
        ),
        (
            {"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}},
            "sharing.mpsConfig: is allowed only with strategy MPS",
        ),
        (
            {"sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}}},
            "sharing.mpsConfig.defaultActiveThreadPercentage: must be a whole number from 0 to 100",
        ),
        ({"apiVersion": "v1"}, "apiVersion: must be one of resource.nvidia.com/v1beta1"),
        ({"kind": None}, "kind: is required and must be MigDeviceConfig"),
    ],
)
def test_a_config_of_a_partition_is_read_strictly(document: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert decode_mig_config({**MIG, **document}) == MigDeviceConfig()
        return
    with pytest.raises(ClaimRefused) as refused:
        decode_mig_config({**MIG, **document})
    assert message in str(refused.value)


@pytest.mark.parametrize("kind", ["GpuConfig", "VfioDeviceConfig"])
def test_a_config_for_another_kind_of_device_than_a_partition_is_named_with_the_way_out(kind: str) -> None:
    with pytest.raises(
        ClaimRefused,
        match=f"is a {kind}, but the device it applies to is a partition: use kind MigDeviceConfig, or "
        "name the `requests`",
    ):
        decode_mig_config({**HEAD, "kind": kind})


def test_passthrough_without_a_word_takes_the_legacy_way_and_the_api_device() -> None:
    assert decode_any(VFIO) == VfioDeviceConfig("LegacyOnly", enable_api_device=True)
    assert decode_any({**VFIO, "iommu": {}}) == VfioDeviceConfig()


def test_every_field_of_passthrough_is_read() -> None:
    iommu = {"backendPolicy": "PreferIommuFD", "enableAPIDevice": False}

    assert decode_any({**VFIO, "iommu": iommu}) == VfioDeviceConfig("PreferIommuFD", enable_api_device=False)


def test_a_document_is_decoded_as_the_kind_that_it_says_it_is() -> None:
    sharing = {"strategy": "MPS", "mpsConfig": {"multiUser": True}}

    assert decode_any({**HEAD, "sharing": sharing}) == decode_gpu_config({**HEAD, "sharing": sharing})
    assert decode_any({**MIG, "sharing": sharing}) == decode_mig_config({**MIG, "sharing": sharing})


@pytest.mark.parametrize(
    ("document", "errors"),
    [
        (
            {**VFIO, "iommu": {"backendPolicy": "Any", "enableAPIDevice": "true", "x": 1}, "sharing": {}},
            (
                "at.iommu.backendPolicy: must be one of LegacyOnly, PreferIommuFD",
                "at.iommu.enableAPIDevice: must be true or false",
                "at.iommu.x: unknown field",
                "at.sharing: unknown field",
            ),
        ),
        ({**VFIO, "iommu": []}, ("at.iommu: must be an object",)),
        (
            {**HEAD, "kind": "ComputeDomainChannelConfig", "domainID": "x"},
            ("at.kind: must be one of GpuConfig, MigDeviceConfig, VfioDeviceConfig",),
        ),
        (
            {},
            (
                f"at.apiVersion: is required and must be {API_VERSION}",
                f"at.kind: is required and must be {', '.join(KINDS[:-1])} or VfioDeviceConfig",
            ),
        ),
        ("x", ("at: must be an object",)),
    ],
    ids=["passthrough", "no object", "a foreign kind", "nothing", "text"],
)
def test_errors_stand_apart_each_with_the_path_of_the_document(
    document: Any, errors: tuple[str, ...]
) -> None:
    with pytest.raises(MalformedConfig) as refused:
        decode_any(document, "at")

    assert refused.value.errors == errors
    assert str(refused.value).startswith("the opaque configuration is malformed: " + "; ".join(errors))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["sharing", "strategy", "mpsConfig", "timeSlicingConfig", "interval", "iommu", "kind", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "sharing", "iommu", "x"]), json_values))
def test_whatever_a_claim_says_is_decoded_or_refused(document: dict[str, Any]) -> None:
    for decode, head in (
        (decode_gpu_config, HEAD),
        (decode_mig_config, MIG),
        *((decode_any, head) for head in ({}, HEAD, MIG, VFIO)),
    ):
        try:
            decode({**head, **document})
        except ClaimRefused as refused:
            assert not refused.retryable
