"""A review warns of what looks wrong, in the words of what prepare would do, and lets the object pass."""

from __future__ import annotations

from typing import Any

import pytest

from controller.admission_findings import CLASS_KINDS
from driver.claims import read_claim
from driver.errors import ClaimRefused
from driver.opaque import GpuConfig, MigDeviceConfig
from kubeletplugin.plan import plan
from tests.controller.reviewed import (
    MPS,
    TIME_SLICING,
    Object,
    claim,
    config,
    device_class,
    errors,
    parameters,
    request,
    template,
    warnings,
)
from tests.deviceclasses.shipped_classes import DEFAULT, expressions

SLICED = parameters(sharing=TIME_SLICING)
WHOLE, PARTITION = "gpu-0000-1b-00-0", "gpu-0000-1b-00-0-mig-1g-10gb-0"


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_config_that_names_a_request_for_another_kind_of_class(version: str) -> None:
    asked = [request("part", "mig.nvidia.com", version)]

    assert warnings(claim(config(parameters(), "part"), requests=asked, version=version)) == (
        (
            "spec.devices.config[0]: GpuConfig is for a whole GPU, and class mig.nvidia.com stands for "
            "a partition, for which prepare refuses it"
        ),
    )


def test_a_config_that_names_a_list_by_priority_is_compared_with_each_entry() -> None:
    listed = [
        {"name": "w", "deviceClassName": "gpu.nvidia.com"},
        {"name": "p", "deviceClassName": "mig-small"},
    ]

    found = warnings(claim(config(parameters(), "a"), requests=[{"name": "a", "firstAvailable": listed}]))

    assert len(found) == 1
    assert "class mig-small stands for a partition" in found[0]
    assert not warnings(
        claim(config(parameters(), "a/w"), requests=[{"name": "a", "firstAvailable": listed}])
    )


def test_a_config_for_all_requests_of_which_none_is_of_its_kind() -> None:
    asked = [request("part", "mig-small"), request("other", "mig.nvidia.com")]

    assert warnings(claim(config(SLICED), requests=asked)) == (
        "spec.devices.config[0]: GpuConfig is for a whole GPU, and no request asks for one: it has no effect",
    )
    assert warnings(claim(config(parameters()), requests=[*asked, request("whole", "own-class")])) == ()


def test_a_config_that_a_later_one_overrides() -> None:
    exclusive = parameters()

    assert warnings(claim(config(SLICED), config(exclusive, "gpu"))) == (
        "spec.devices.config[0]: has no effect on request gpu: spec.devices.config[1] comes later and wins",
    )
    assert warnings(device_class(config(SLICED), config(exclusive))) == (
        "spec.config[0]: has no effect on this class: spec.config[1] comes later and wins",
    )
    assert warnings(claim(config(exclusive), config(exclusive))) == ()
    assert warnings(claim(config(exclusive), config(parameters("MigDeviceConfig")), requests=[])) == ()


def test_sharing_that_prepare_refuses() -> None:
    path = "config[0].opaque.parameters.sharing: prepare refuses"
    whole = "a whole GPU is handed to one claim at a time: remove `sharing`"

    assert warnings(claim(config(SLICED))) == (f"spec.devices.{path} TimeSlicing: {whole}",)
    assert warnings(template(config(SLICED))) == (f"spec.spec.devices.{path} TimeSlicing: {whole}",)
    assert warnings(device_class(config(parameters(sharing=MPS)))) == (f"spec.{path} MPS: {whole}",)
    assert warnings(device_class(config(parameters("MigDeviceConfig", sharing=MPS)))) == (
        f"spec.{path} MPS: a partition is handed to one claim at a time: remove `sharing`",
    )


def test_sharing_is_said_once_for_many_requests() -> None:
    assert len(warnings(claim(config(SLICED), requests=[request("a"), request("b")]))) == 1


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_request_with_admin_access_shares_whatever_is_said(version: str) -> None:
    looking = [request("gpu", version=version, adminAccess=True)]

    assert warnings(claim(config(SLICED), requests=looking, version=version)) == ()


def test_time_slicing_of_a_partition_has_no_effect() -> None:
    sliced = config(parameters("MigDeviceConfig", sharing={"strategy": "TimeSlicing"}))

    (warning,) = warnings(claim(sliced, requests=[request("part", "mig.nvidia.com")]))

    assert "config[0].opaque.parameters.sharing: TimeSlicing has no effect on a partition" in warning


def test_passthrough_is_not_offered() -> None:
    (warning,) = warnings(claim(config(parameters("VfioDeviceConfig", iommu={"enableAPIDevice": True}))))

    assert warning.startswith("spec.devices.config[0]: this driver passes no GPU through")
    assert warning.endswith("VfioDeviceConfig has no effect")
    (warning,) = warnings(
        claim(config(parameters("VfioDeviceConfig"), "gpu"), requests=[request("gpu", "x")])
    )
    assert warning.endswith("prepare refuses VfioDeviceConfig")


def test_a_class_for_two_kinds_of_devices_and_one_of_the_wrong_kind() -> None:
    both = (config(parameters()), config(parameters("MigDeviceConfig")))

    (warning,) = warnings(device_class(*both))
    assert warning.startswith("spec.config[1]: a class gives its configurations to every request")
    (warning,) = warnings(device_class(both[0], name="mig.nvidia.com"))
    assert warning.startswith("spec.config[0]: GpuConfig is for a whole GPU, and class mig.nvidia.com stands")


def test_warnings_are_bounded() -> None:
    many = [
        config(parameters(sharing={**MPS, "mpsConfig": {"defaultActiveThreadPercentage": n}}))
        for n in range(32)
    ]

    found = warnings(claim(*many))

    assert len(found) == 17
    assert found[-1] == "and 16 more"


def test_the_classes_that_come_along_are_known_by_what_their_devices_are() -> None:
    kinds = {
        name: GpuConfig if "type == 'gpu'" in " ".join(expressions(one)) else MigDeviceConfig
        for name, one in DEFAULT.items()
    }

    assert {name: CLASS_KINDS.get(name) for name in kinds} == kinds


@pytest.mark.parametrize("device", [WHOLE, PARTITION])
@pytest.mark.parametrize("other", ["MigDeviceConfig", "VfioDeviceConfig"])
def test_a_request_named_for_two_kinds_is_refused_whatever_it_gets(other: str, device: str) -> None:
    stored = claim(
        config(parameters(), "gpu"), config(parameters(other), "gpu"), requests=[request("gpu", "x")]
    )

    assert len(errors(stored)) == 1
    assert refused_at_prepare(stored, device)


def refused_at_prepare(stored: Object, device: str) -> bool:
    """Whether prepare refuses the claim once its request ``gpu`` was given this device."""
    configs = [{"source": "FromClaim", **one} for one in stored["spec"]["devices"]["config"]]
    asked = stored["spec"]["devices"]["requests"][0]["exactly"]
    result: Object = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "p", "device": device}
    if asked.get("adminAccess"):
        result["adminAccess"] = True
    stored["metadata"] = {"name": "c", "namespace": "n", "uid": "u"}
    stored["status"] = {"allocation": {"devices": {"results": [result], "config": configs}}}
    try:
        plan(read_claim(stored, "u", "gpu.nvidia.com"), "p")
    except ClaimRefused:
        return True
    return False


@pytest.mark.parametrize("admin", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("sharing", [None, {"strategy": "TimeSlicing"}, MPS])
@pytest.mark.parametrize("kind", ["GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"])
@pytest.mark.parametrize(("class_name", "device"), [("gpu.nvidia.com", WHOLE), ("mig.nvidia.com", PARTITION)])
def test_what_prepare_refuses_was_warned_of_as_refused(
    class_name: str, device: str, kind: str, sharing: Any, named: bool, admin: bool
) -> None:
    document = (
        parameters(kind) if sharing is None or kind.startswith("V") else parameters(kind, sharing=sharing)
    )
    asked = request("gpu", class_name, adminAccess=admin)
    stored = claim(config(document, *(["gpu"] if named else [])), requests=[asked])

    said = " ".join(warnings(stored))

    assert refused_at_prepare(stored, device) == ("prepare refuses" in said)
