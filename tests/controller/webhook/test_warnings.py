"""A review warns of what looks wrong, in the words of what prepare would do, and lets the object pass."""

from __future__ import annotations

from itertools import product

import pytest

from controller.webhook.review import CLASS_KINDS, CLASS_STRATEGIES
from controller.webhook.subject import read_subject
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
from tests.kubeletplugin.held import held_kinds

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
    (found,) = warnings(claim(config(parameters(), "a"), requests=asked))

    assert "class mig-small, as it comes with this driver, selects a partition" in found
    assert not errors(claim(config(parameters(), "a"), requests=asked), "mig-small")
    assert errors(claim(config(parameters(), "a/p"), requests=asked), "mig-small") == (found,)
    assert not warnings(claim(config(parameters(), "a/w"), requests=asked))


def test_a_config_for_all_requests_of_which_none_is_of_its_kind() -> None:
    asked = [request("part", "mig-small"), request("other", "mig.nvidia.com")]
    said = "spec.devices.config[0]: GpuConfig is for a GPU, and no request asks for one: prepare refuses it"

    assert warnings(claim(config(SLICED), requests=asked)) == (said,)
    assert errors(claim(config(SLICED), requests=asked), "mig-small") == (said,)
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
    path = "config[0].opaque.parameters.sharing: prepare refuses"
    ours = ", as it comes with this driver, selects GPUs that are shared by"
    slices, clients = f"class shared-timesliced{ours} TimeSlicing", f"class shared-mps{ours} MPS"
    sliced, computing = [request("gpu", "shared-timesliced")], [request("gpu", "shared-mps")]

    assert warnings(claim(config(SHARED_BY_MPS), requests=sliced)) == (f"spec.devices.{path} MPS: {slices}",)
    assert warnings(claim(config(SLICED, "gpu"), requests=computing)) == (
        f"spec.devices.{path} TimeSlicing: {clients}",
    )
    assert warnings(claim(config(SHARED_BY_MPS), requests=computing)) == ()
    either = [request("gpu", "shared-memory")]
    assert warnings(claim(config(SHARED_BY_MPS), requests=either)) == ()
    assert warnings(claim(config(SLICED), requests=either)) == ()
    assert warnings(claim(config(parameters()), requests=[*sliced, request("two", "shared-mps")])) == ()


OWN = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com']"


@pytest.mark.parametrize("name", ["medium", "gpu.nvidia.com", "mig-small", "gold"])
@pytest.mark.parametrize(
    ("selects", "words"),
    [
        (f"{OWN}.type == 'mig'", "this class selects a partition, for which prepare refuses it"),
        (
            f"{OWN}.sharing == 'mps' && {OWN}.type == 'shared'",
            "this class selects GPUs that are shared by MPS",
        ),
        (
            f"{OWN}.type == 'shared' && 'profile' in device.attributes['gpu.nvidia.com']",
            "selects a partition",
        ),
        (f"{OWN}.type == 'shared' && !('profile' in device.attributes['gpu.nvidia.com'])", ""),
        (f"{OWN}.type == 'gpu'", ""),
        (f"{OWN}.type == 'mig' || {OWN}.type == 'gpu'", ""),
        ("device.driver == 'other.example.com'", ""),
        ("", ""),
    ],
)
def test_a_class_is_judged_by_what_it_selects_and_not_by_its_name(
    name: str, selects: str, words: str
) -> None:
    found = warnings(device_class(config(SLICED), name=name, selects=selects))
    assert [words in one for one in found] == ([True] if words else [])


@pytest.mark.parametrize("name", sorted(DEFAULT))
def test_what_the_classes_that_come_with_the_driver_select_is_what_their_names_stand_for(name: str) -> None:
    [asked] = read_subject("DeviceClass", DEFAULT[name]).requests
    assert CLASS_KINDS.get(asked.class_name) is CLASS_KINDS.get(name)
    assert CLASS_STRATEGIES.get(asked.class_name) == CLASS_STRATEGIES.get(name)


def test_a_time_slice_that_a_claim_wants_where_its_class_decides() -> None:
    sliced = [request("gpu", "shared-timesliced")]
    for entry in (config(SLICED), config(SLICED, "gpu")):
        assert warnings(claim(entry, requests=sliced)) == (
            (
                "spec.devices.config[0].opaque.parameters.sharing.timeSlicingConfig.interval: "
                "prepare refuses Short unless class shared-timesliced, as it comes with this "
                "driver, sets it too: its GPUs are shared, and the class decides for all claims"
            ),
        )
    unsaid = parameters(sharing={"strategy": "TimeSlicing"})
    assert warnings(claim(config(unsaid), requests=sliced)) == ()
    assert warnings(device_class(config(SLICED), name="shared-timesliced")) == ()
    assert warnings(claim(config(SLICED), requests=[request("gpu", "gpu.nvidia.com")])) == ()
    looking = [request("gpu", "shared-timesliced", adminAccess=True)]
    assert warnings(claim(config(SLICED), requests=looking)) == ()


def test_a_limit_with_which_nothing_runs() -> None:
    (warning,) = warnings(claim(config(parameters(sharing=NO_THREADS))))

    assert warning.endswith(
        "mpsConfig.defaultActiveThreadPercentage: prepare refuses 0, with which nothing runs: "
        "give 1 to 100, or leave it out"
    )
    assert warning.startswith("spec.devices.config[0].opaque.parameters.sharing.")


def test_of_the_strategies_that_a_share_is_given_the_last_one_counts() -> None:
    asked = [request("gpu", "shared-mps")]

    found = warnings(claim(config(SLICED), config(SHARED_BY_MPS), requests=asked))
    assert found == (
        "spec.devices.config[0]: has no effect on request gpu: spec.devices.config[1] comes later and wins",
    )
    found = warnings(claim(config(SHARED_BY_MPS), config(SLICED), requests=asked))
    assert ["prepare refuses TimeSlicing" in one for one in found] == [False, True]


def test_a_contradiction_is_said_once_for_each_class() -> None:
    asked = [request("a", "shared-mps"), request("b", "shared-mps")]

    assert len(warnings(claim(config(SLICED), requests=asked))) == 1


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_request_with_admin_access_shares_whatever_is_said(version: str) -> None:
    looking = [request("gpu", "shared-mps", version=version, adminAccess=True)]

    assert warnings(claim(config(SLICED), requests=looking, version=version)) == ()


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


def test_a_class_for_two_kinds_of_devices_and_one_of_the_wrong_kind() -> None:
    both = (config(parameters()), config(parameters("MigDeviceConfig")))

    (error,) = errors(device_class(*both))
    assert error.startswith("spec.config[1]: a class applies its configurations to every request")
    (warning,) = warnings(device_class(both[0], selects=f"{OWN}.type == 'mig'"))
    assert warning.startswith("spec.config[0]: GpuConfig is for a GPU, but this class selects")


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
        plan(read_claim(stored, "u", "gpu.nvidia.com"), "p", held_kinds())
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
def test_what_prepare_refuses_was_denied_or_warned_of(class_name: str, device: str) -> None:
    for kind, sharing, named, admin in CONFIGURATIONS:
        document = (
            parameters(kind) if sharing is None or kind.startswith("V") else parameters(kind, sharing=sharing)
        )
        asked = request("gpu", class_name, adminAccess=admin)
        stored = claim(config(document, *(["gpu"] if named else [])), requests=[asked])

        found = findings(stored, *CLASS_KINDS)

        refused = refused_at_prepare(stored, device)
        # A partition can be shared by either strategy, so only prepare knows which is wrong.
        is_unsaid = (class_name, kind, sharing) == ("shared-mig", "MigDeviceConfig", TIME_SLICED)
        said = "prepare refuses" in " ".join((*found.errors, *found.warnings))
        assert refused == said or is_unsaid, (kind, sharing, named, admin)
        assert refused or not found.errors, (kind, sharing, named, admin)
        assert refused or sharing is not None or not found.warnings
        # Only a limit of 0 is warned of and not denied.
        assert found.errors or not refused or is_unsaid or sharing is NO_THREADS
