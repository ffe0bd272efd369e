"""A review denies what prepare would refuse for any device, and warns of what has no effect."""

from itertools import product

import pytest

from controller.webhook.review import CLASS_KINDS, CLASS_STRATEGIES
from driver.claims.allocation import read_claim
from driver.claims.opaque import VfioDeviceConfig
from kubeletplugin.claims.plan import plan
from tests.clusters import Object
from tests.controller.webhook.reviewed import (
    MPS,
    TIME_SLICING,
    claim,
    config,
    device_class,
    findings,
    parameters,
    request,
    template,
)
from tests.deviceclasses.shipped_classes import DEFAULT, expressions
from tests.gpus import ClaimRefused, GpuConfig, MigDeviceConfig, decode_any, unshared_name

EXCLUSIVE, PARTITIONED = config(parameters()), config(parameters("MigDeviceConfig"))
SLICED, SERVED = config(parameters(sharing=TIME_SLICING)), config(parameters(sharing=MPS))
TIME_SLICED: Object = {"strategy": "TimeSlicing"}
NO_THREADS: Object = {**MPS, "mpsConfig": {"defaultActiveThreadPercentage": 0}}
WHOLE, PARTITION = "gpu-0000-1b-00-0", "gpu-0000-1b-00-0-mig-1g-10gb-0"
SLICES, CLIENTS = f"{WHOLE}-ts-4", f"{WHOLE}-mps-4"
LISTED = {
    "name": "a",
    "firstAvailable": [
        {"name": "w", "deviceClassName": "gpu.nvidia.com"},
        {"name": "p", "deviceClassName": "mig-small"},
    ],
}
PARTITIONS = [request("part", "mig-small"), request("other", "mig.nvidia.com")]


def named(entry: Object, request: str) -> Object:
    return {**entry, "requests": [request]}


def of(class_name: str, *configs: Object) -> Object:
    """A claim for a device of that class."""
    return claim(*configs, requests=[request("gpu", class_name)])


@pytest.mark.parametrize(
    ("stored", "denied", "warned"),
    [
        (
            claim(named(EXCLUSIVE, "part"), requests=PARTITIONS),
            "spec.devices.config[0]: GpuConfig is for a GPU, but class mig-small, as it comes with this",
            "",
        ),
        (claim(named(EXCLUSIVE, "a"), requests=[LISTED]), "", ""),
        (claim(named(EXCLUSIVE, "a/w"), requests=[LISTED]), "", ""),
        (claim(named(EXCLUSIVE, "a/p"), requests=[LISTED]), "class mig-small, as it comes", ""),
        (
            claim(SLICED, requests=PARTITIONS),
            "config[0]: GpuConfig is for a GPU, and no request asks for one: prepare refuses it",
            "",
        ),
        (claim(EXCLUSIVE, requests=[*PARTITIONS, request("whole", "own-class")]), "", ""),
        (device_class(EXCLUSIVE, PARTITIONED), "config[1]: a class applies its configurations to every", ""),
        (
            claim(SLICED, named(EXCLUSIVE, "gpu")),
            "",
            "spec.devices.config[0]: has no effect on request gpu: spec.devices.config[1] comes later",
        ),
        (device_class(SLICED, EXCLUSIVE), "", "spec.config[0]: has no effect on this class: spec.config[1]"),
        (claim(EXCLUSIVE, EXCLUSIVE), "", ""),
        (claim(EXCLUSIVE, PARTITIONED, requests=[]), "", ""),
        (
            of("shared-timesliced", SERVED),
            "config[0].opaque.parameters.sharing: prepare refuses MPS: class shared-timesliced, as it comes",
            "",
        ),
        (of("shared-mps", named(SLICED, "gpu")), "prepare refuses TimeSlicing: class shared-mps", ""),
        (of("shared-mps", SERVED, SLICED), "prepare refuses TimeSlicing", "config[0]: has no effect"),
        (of("shared-mps", SLICED, SERVED), "", "spec.devices.config[0]: has no effect on request gpu"),
        (of("shared-memory", SERVED), "", ""),
        (of("shared-memory", SLICED), "", ""),
        (
            claim(SLICED, requests=[request("a", "shared-mps"), request("b", "shared-mps")]),
            "prepare refuses TimeSlicing",  # said once for the class
            "",
        ),
        (
            of("mig.nvidia.com", config(parameters("MigDeviceConfig", sharing=TIME_SLICED))),
            "",
            "config[0].opaque.parameters.sharing: TimeSlicing has no effect on a partition",
        ),
        *((of(name, entry), "", "") for name in ("large", "own-class") for entry in (SLICED, SERVED)),
        *((make(SLICED), "", "") for make in (device_class, template)),
        (of("mig-small", config(parameters("MigDeviceConfig", sharing=MPS))), "", ""),
        (claim(requests=[request("gpu"), request("c", "nvlink-channel")]), "", "request c: pods that share"),
        (claim(requests=[request("c", "nvlink-channel", allocationMode="All")]), "", "request c: allocation"),
        (claim(requests=[request("c", "nvlink-channel"), request("nic", "nics")]), "", ""),
    ],
)
def test_one_mistake_is_said_once(stored: Object, denied: str, warned: str) -> None:
    found = findings(stored, *CLASS_KINDS)

    assert [denied in said for said in found.errors] == ([True] if denied else [])
    assert [warned in said for said in found.warnings] == ([True] if warned else [])


def test_a_class_of_the_admin_that_has_the_name_of_one_of_ours_is_not_judged() -> None:
    assert findings(claim(SLICED, requests=PARTITIONS)).errors == ()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_each_version_of_the_api_is_read(version: str) -> None:
    asked = [request("gpu", "mig.nvidia.com", version)]
    looking = [request("gpu", "shared-mps", version, adminAccess=True)]

    assert findings(claim(named(EXCLUSIVE, "gpu"), requests=asked, version=version)).errors
    assert findings(claim(SLICED, requests=looking, version=version), "shared-mps").errors == ()


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
        fields = {} if sharing is None or kind.startswith("V") else {"sharing": sharing}
        asked = request("gpu", class_name, adminAccess=admin)
        stored = claim(config(parameters(kind, **fields), *(["gpu"] if named else [])), requests=[asked])

        found = findings(stored, *CLASS_KINDS)

        # A partition can be shared by either strategy, and a limit of 0 is a right value. Prepare says so.
        by_either = ("shared-mig", "MigDeviceConfig", TIME_SLICED)
        is_unsaid = sharing is NO_THREADS or (class_name, kind, sharing) == by_either
        refused = refused_at_prepare(stored, device)
        assert bool(found.errors) == refused or (refused and is_unsaid), (kind, sharing, named, admin)
