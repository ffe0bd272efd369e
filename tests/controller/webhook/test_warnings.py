"""A review denies what prepare would refuse for any device, and warns of what has no effect."""

from __future__ import annotations

from itertools import product

import pytest

from controller.webhook.review import CLASS_KINDS, CLASS_STRATEGIES, Findings
from driver.claims.allocation import read_claim
from driver.claims.opaque import GpuConfig, MigDeviceConfig, VfioDeviceConfig, decode_any
from driver.devices.names import unshared_name
from driver.errors import ClaimRefused
from kubeletplugin.claims.plan import plan
from tests.controller.webhook.reviewed import (
    MPS,
    TIME_SLICING,
    Object,
    claim,
    config,
    device_class,
    errors,
    findings,
    parameters,
    request,
    template,
    warnings,
)
from tests.deviceclasses.shipped_classes import DEFAULT, expressions

SLICED = parameters(sharing=TIME_SLICING)
TIME_SLICED: Object = {"strategy": "TimeSlicing"}
NO_THREADS: Object = {**MPS, "mpsConfig": {"defaultActiveThreadPercentage": 0}}
SHARED_BY_MPS = parameters(sharing=MPS)
WHOLE, PARTITION = "gpu-0000-1b-00-0", "gpu-0000-1b-00-0-mig-1g-10gb-0"
SLICES, CLIENTS = f"{WHOLE}-ts-4", f"{WHOLE}-mps-4"


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_config_that_names_a_request_for_another_kind_of_class(version: str) -> None:
    asked = [request("part", "mig.nvidia.com", version)]

    assert errors(claim(config(parameters(), "part"), requests=asked, version=version)) == (
        (
            "spec.devices.config[0]: GpuConfig is for a GPU, but class mig.nvidia.com selects a "
            "partition, for which prepare refuses it"
        ),
    )


def test_a_config_that_names_a_list_by_priority_is_compared_with_each_entry() -> None:
    listed = [
        {"name": "w", "deviceClassName": "gpu.nvidia.com"},
        {"name": "p", "deviceClassName": "mig-small"},
    ]
    asked = [{"name": "a", "firstAvailable": listed}]

    assert not errors(claim(config(parameters(), "a"), requests=asked), "mig-small")
    (error,) = errors(claim(config(parameters(), "a/p"), requests=asked), "mig-small")
    assert "class mig-small, as it comes with this driver, selects a partition" in error
    assert not errors(claim(config(parameters(), "a/w"), requests=asked), "mig-small")


def test_a_config_for_all_requests_of_which_none_is_of_its_kind() -> None:
    asked = [request("part", "mig-small"), request("other", "mig.nvidia.com")]
    said = "spec.devices.config[0]: GpuConfig is for a GPU, and no request asks for one: prepare refuses it"

    assert findings(claim(config(SLICED), requests=asked)) == Findings()
    assert errors(claim(config(SLICED), requests=asked), "mig-small") == (said,)
    with_another = [*asked, request("whole", "own-class")]
    assert errors(claim(config(parameters()), requests=with_another), "mig-small") == ()


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


@pytest.mark.parametrize("class_name", ["gpu.nvidia.com", "large", "medium", "own-class"])
@pytest.mark.parametrize("document", [SLICED, SHARED_BY_MPS])
def test_a_gpu_that_one_claim_has_is_shared_by_its_pods_in_any_way(class_name: str, document: Object) -> None:
    assert warnings(claim(config(document), requests=[request("gpu", class_name)])) == ()
    assert warnings(claim(config(document, "gpu"), requests=[request("gpu", class_name)])) == ()
    assert warnings(device_class(config(document), name=class_name)) == ()
    assert warnings(template(config(document))) == ()


def test_a_partition_that_one_claim_has_is_shared_by_its_pods_with_mps() -> None:
    shared = config(parameters("MigDeviceConfig", sharing=MPS))

    for class_name in ("mig.nvidia.com", "mig-small", "shared-mig"):
        assert warnings(claim(shared, requests=[request("part", class_name)])) == ()


def test_a_strategy_that_contradicts_the_class_of_shares() -> None:
    path = "spec.devices.config[0].opaque.parameters.sharing: prepare refuses"
    ours = ", as it comes with this driver, selects GPUs that are shared by"
    slices, clients = f"class shared-timesliced{ours} TimeSlicing", f"class shared-mps{ours} MPS"
    classes = ("shared-timesliced", "shared-mps", "shared-memory")
    sliced, computing = [request("gpu", "shared-timesliced")], [request("gpu", "shared-mps")]

    assert errors(claim(config(SHARED_BY_MPS), requests=sliced), *classes) == (f"{path} MPS: {slices}",)
    assert errors(claim(config(SLICED, "gpu"), requests=computing), *classes) == (
        f"{path} TimeSlicing: {clients}",
    )
    either = [request("gpu", "shared-memory")]
    for document, asked in (
        (SHARED_BY_MPS, computing),
        (SHARED_BY_MPS, either),
        (SLICED, either),
        (parameters(), [*sliced, request("two", "shared-mps")]),
    ):
        assert findings(claim(config(document), requests=asked), *classes) == Findings()


def test_of_the_strategies_that_a_share_is_given_the_last_one_counts() -> None:
    asked = [request("gpu", "shared-mps")]

    found = warnings(claim(config(SLICED), config(SHARED_BY_MPS), requests=asked))
    assert found == (
        "spec.devices.config[0]: has no effect on request gpu: spec.devices.config[1] comes later and wins",
    )
    (error,) = errors(claim(config(SHARED_BY_MPS), config(SLICED), requests=asked), "shared-mps")
    assert "prepare refuses TimeSlicing" in error


def test_a_contradiction_is_said_once_for_each_class() -> None:
    asked = [request("a", "shared-mps"), request("b", "shared-mps")]

    assert len(errors(claim(config(SLICED), requests=asked), "shared-mps")) == 1


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_request_with_admin_access_shares_whatever_is_said(version: str) -> None:
    looking = [request("gpu", "shared-mps", version=version, adminAccess=True)]

    assert findings(claim(config(SLICED), requests=looking, version=version), "shared-mps") == Findings()


def test_time_slicing_of_a_partition_has_no_effect() -> None:
    sliced = config(parameters("MigDeviceConfig", sharing={"strategy": "TimeSlicing"}))

    (warning,) = warnings(claim(sliced, requests=[request("part", "mig.nvidia.com")]))

    assert "config[0].opaque.parameters.sharing: TimeSlicing has no effect on a partition" in warning


def test_a_configuration_for_a_virtual_machine_fits_no_other_gpu() -> None:
    (error,) = errors(claim(config(parameters("VfioDeviceConfig"))))

    assert error == (
        "spec.devices.config[0]: VfioDeviceConfig is for a vGPU or a GPU for a virtual machine, "
        "and no request asks for one: prepare refuses it"
    )


def test_a_class_for_two_kinds_of_devices() -> None:
    both = (config(parameters()), config(parameters("MigDeviceConfig")))

    (error,) = errors(device_class(*both))
    assert error.startswith("spec.config[1]: a class applies its configurations to every request")


def test_warnings_are_bounded() -> None:
    many = [
        config(parameters(sharing={**MPS, "mpsConfig": {"defaultActiveThreadPercentage": n}}))
        for n in range(1, 33)
    ]

    found = warnings(claim(*many))

    assert len(found) == 17
    assert found[-1] == "and 15 more"


def test_the_classes_that_come_along_are_known_by_what_their_devices_are() -> None:
    kinds: dict[str, type] = {}
    for name, one in DEFAULT.items():
        said = " ".join(expressions(one))
        if "type == 'vfio'" in said or "type == 'vgpu'" in said:
            kinds[name] = VfioDeviceConfig
        elif "type == 'mig'" in said or "&& 'profile' in" in said:
            kinds[name] = MigDeviceConfig
        elif "type == " in said:
            kinds[name] = GpuConfig

    assert kinds == CLASS_KINDS
    assert set(DEFAULT) - set(kinds) == {"monitoring"}


def strategy_of(parameters: Object) -> str | None:
    config = decode_any(parameters)
    assert isinstance(config, GpuConfig)
    return config.strategy


def test_the_classes_of_shares_are_known_by_the_strategy_that_they_carry() -> None:
    carried = {
        name: strategy_of(entry["opaque"]["parameters"])
        for name, one in DEFAULT.items()
        for entry in one["spec"].get("config", ())
    }

    assert carried == CLASS_STRATEGIES


def refused_at_prepare(stored: Object, device: str) -> bool:
    """Whether prepare refuses the claim once its request ``gpu`` was given this device."""
    # The scheduler leaves the requests of an entry out if they are all of the claim's.
    configs = [
        {"source": "FromClaim", "opaque": one["opaque"]} for one in stored["spec"]["devices"]["config"]
    ]
    asked = stored["spec"]["devices"]["requests"][0]["exactly"]
    result: Object = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "p", "device": device}
    if unshared_name(device) != device:
        result |= {"shareID": "0f5c1a2e-7a55-4a53-8b5c-0a1b2c3d4e5f", "consumedCapacity": {"shares": "1"}}
    if asked.get("adminAccess"):
        result["adminAccess"] = True
    stored["metadata"] = {"name": "c", "namespace": "n", "uid": "u"}
    stored["status"] = {"allocation": {"devices": {"results": [result], "config": configs}}}
    try:
        plan(read_claim(stored, "u", "gpu.nvidia.com"), "p")
    except ClaimRefused:
        return True
    return False


CONFIGURATIONS = [*product(
    ("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"),
    (None, TIME_SLICED, MPS, NO_THREADS),
    (False, True),
    (False, True),
)]  # fmt: skip


@pytest.mark.parametrize(
    ("class_name", "device"),
    [
        ("gpu.nvidia.com", WHOLE),
        ("large", WHOLE),
        ("mig.nvidia.com", PARTITION),
        ("mig-small", PARTITION),
        ("shared-mig", f"{PARTITION}-mps-4"),
        ("vfio.gpu.nvidia.com", f"{WHOLE}-vfio"),
        ("vgpu.gpu.nvidia.com", f"{WHOLE}-vgpu-l40s-8q-3"),
        ("shared-timesliced", SLICES),
        ("shared-mps", CLIENTS),
    ],
)
def test_what_is_denied_is_what_prepare_refuses(class_name: str, device: str) -> None:
    for kind, sharing, named, admin in CONFIGURATIONS:
        document = (
            parameters(kind) if sharing is None or kind.startswith("V") else parameters(kind, sharing=sharing)
        )
        asked = request("gpu", class_name, adminAccess=admin)
        stored = claim(config(document, *(["gpu"] if named else [])), requests=[asked])

        found = findings(stored, *CLASS_KINDS)

        # A partition can be shared by either strategy, and a limit of 0 is a right value. Prepare says so.
        is_unsaid = (class_name, kind, sharing) == (
            "shared-mig",
            "MigDeviceConfig",
            TIME_SLICED,
        ) or sharing is NO_THREADS
        refused = refused_at_prepare(stored, device)
        assert bool(found.errors) == refused or (refused and is_unsaid), (kind, sharing, named, admin)
