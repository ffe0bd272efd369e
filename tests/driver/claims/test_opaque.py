"""Opaque configuration is decoded strictly: all errors at once, each with its path, never a crash."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.opaque import API_VERSION, KINDS, MpsSettings, VfioDeviceConfig, decode_for
from tests.clusters import Object
from tests.gpus import ClaimRefused, GpuConfig, MalformedConfig, MigDeviceConfig, decode_any

HEAD = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
MIG = {**HEAD, "kind": "MigDeviceConfig"}
VFIO = {**HEAD, "kind": "VfioDeviceConfig"}


def decode(document: Any) -> object:
    """The configuration of the kind that the document says it is, for a device that takes that kind."""
    return decode_for(document, document.get("kind") or "GpuConfig", "a device")


def sharing(head: dict[str, str], strategy: str, **settings: Any) -> Object:
    return {**head, "sharing": {"strategy": strategy, **settings}}


LONG = {"interval": "Long"}
MPS = {
    "defaultActiveThreadPercentage": 50,
    "defaultPinnedDeviceMemoryLimit": "8Gi",
    "defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"},
    "multiUser": True,
}
WRONG_MPS = {"defaultActiveThreadPercentage": True, "defaultPinnedDeviceMemoryLimit": "1Ki"}
MPS_READ = MpsSettings(50, 8 << 30, (("0", 1 << 30),), True)


@pytest.mark.parametrize(
    ("document", "config"),
    [
        (HEAD, GpuConfig()),  # one claim alone
        (sharing(HEAD, "TimeSlicing", timeSlicingConfig={}), GpuConfig("TimeSlicing", "")),
        (sharing(HEAD, "TimeSlicing", timeSlicingConfig=LONG), GpuConfig("TimeSlicing", "Long")),
        (sharing(HEAD, "MPS", mpsConfig=MPS), GpuConfig("MPS", "", MPS_READ)),
        (MIG, MigDeviceConfig()),
        ({**MIG, "sharing": {}}, MigDeviceConfig()),
        (sharing(MIG, "TimeSlicing"), MigDeviceConfig("TimeSlicing", MpsSettings())),  # it asks for nothing
        (sharing(MIG, "MPS", mpsConfig=MPS), MigDeviceConfig("MPS", MPS_READ)),
        (VFIO, VfioDeviceConfig("LegacyOnly", enable_api_device=True)),
        ({**VFIO, "iommu": {}}, VfioDeviceConfig()),
        (
            {**VFIO, "iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": False}},
            VfioDeviceConfig("PreferIommuFD", enable_api_device=False),
        ),
    ],
)
def test_every_field_is_read(document: Object, config: object) -> None:
    assert decode(document) == decode_any(document) == config


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        (
            {
                **sharing(HEAD, "MPS", timeSlicingConfig={"interval": "Tiny"}, mpsConfig=WRONG_MPS),
                "apiVersion": "resource.nvidia.com/v2",
                "colour": "red",
            },
            (
                "apiVersion: must be one of",
                "colour: unknown field",
                "sharing.timeSlicingConfig: is allowed only with strategy TimeSlicing",
                "sharing.timeSlicingConfig.interval: must be one of Default, Short, Medium, Long",
                "sharing.mpsConfig.defaultActiveThreadPercentage: must be a whole number from 0 to 100",
                "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: must be at least 1Mi",
                "(permanent)",
            ),
        ),
        ({**MIG, "colour": "red"}, ("colour: unknown field",)),
        ({**MIG, "sharing": "x"}, ("sharing: must be an object",)),
        ({**MIG, "sharing": {"mpsConfig": {}}}, ("sharing.strategy: is required and must be TimeSlicing",)),
        (sharing(MIG, "Mps"), ("sharing.strategy: must be one of TimeSlicing, MPS",)),
        (sharing(MIG, "TimeSlicing", timeSlicingConfig=LONG), ("sharing.timeSlicingConfig: unknown field",)),
        (
            sharing(MIG, "TimeSlicing", mpsConfig={}),
            ("sharing.mpsConfig: is allowed only with strategy MPS",),
        ),
        (
            sharing(MIG, "MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
            ("sharing.mpsConfig.defaultActiveThreadPercentage: must be a whole number from 0 to 100",),
        ),
        ({**MIG, "apiVersion": "v1"}, ("apiVersion: must be one of resource.nvidia.com/v1beta1",)),
        ({**HEAD, "kind": None}, ("kind: is required and must be GpuConfig",)),
    ],
)
def test_a_config_is_read_strictly_and_all_errors_come_together(
    document: Object, parts: tuple[str, ...]
) -> None:
    with pytest.raises(ClaimRefused) as refused:
        decode(document)

    assert [part for part in parts if part not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("document", "wanted", "message"),
    [
        ({}, "", "applies to a device, which has no configuration"),
        (MIG, "GpuConfig", "is a MigDeviceConfig, but the device it applies to is a device"),
        *(
            (
                *({**HEAD, "kind": kind}, "MigDeviceConfig"),
                f"is a {kind}, but .* is a device: use kind MigDeviceConfig, or name the `requests`",
            )
            for kind in ("GpuConfig", "VfioDeviceConfig")
        ),
    ],
)
def test_a_config_for_another_kind_of_device_is_named_with_the_way_out(
    document: Object, wanted: str, message: str
) -> None:
    with pytest.raises(ClaimRefused, match=message):
        decode_for(document, wanted, "a device")


def test_errors_stand_apart_each_with_the_path_of_the_document() -> None:
    iommu = {"backendPolicy": "Any", "enableAPIDevice": "true", "x": 1}
    with pytest.raises(MalformedConfig) as refused:
        decode_any({"kind": "VfioDeviceConfig", "iommu": iommu, "sharing": {}}, "at")

    errors = (
        f"at.apiVersion: is required and must be {API_VERSION}",
        "at.iommu.backendPolicy: must be one of LegacyOnly, PreferIommuFD",
        "at.iommu.enableAPIDevice: must be true or false",
        "at.iommu.x: unknown field",
        "at.sharing: unknown field",
    )
    assert set(refused.value.errors) == set(errors)
    told = "the opaque configuration is malformed: " + "; ".join(refused.value.errors)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ({"kind": "ComputeDomainChannelConfig"}, f"kind: must be one of {', '.join(KINDS)}"),
        ({}, f"kind: is required and must be {', '.join(KINDS[:-1])} or VfioDeviceConfig"),
    ],
)
def test_a_document_of_no_kind_of_ours_is_told_which_there_are(kind: dict[str, str], error: str) -> None:
    with pytest.raises(MalformedConfig) as refused:
        decode_any({"apiVersion": API_VERSION, **kind})
    assert refused.value.errors == (error,)


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
def test_whatever_a_claim_says_is_decoded_or_refused(document: Object) -> None:
    decoders: list[Callable[[Any], object]] = [decode_any]
    decoders += [partial(decode_for, wanted=kind, device="it") for kind in KINDS]
    for head, decoder in product(({}, HEAD, MIG, VFIO), decoders):
        try:
            decoder({**head, **document})
        except ClaimRefused as refused:
            assert not refused.retryable
