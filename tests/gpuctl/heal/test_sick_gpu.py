"""A GPU is found by any of its names, and its slices say what is wrong with it and what helps."""

import copy

import pytest

from gpuctl.heal.plan import find_gpu, is_kept_free, sick_gpu
from tests.clusters import Object, plan_node
from tests.gpus import ConfigError, FakeMachine, PciAddress, taints

GPU = PciAddress.parse("0000:1b:00.0")
NAME = "gpu-0000-1b-00-0"
OTHER = PciAddress.parse("0000:43:00.0")
Slices = list[Object]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Slices:
    """Eight H100, whole and in partitions."""
    config = tmp_path_factory.mktemp("config") / "node.yaml"
    config.write_text("version: v1\nrules:\n- {mig: dynamic}\n")
    return list(plan_node("hgx-h100", "node-a", config).slices)


def tainted(published: Slices, key: str, *starts: str, value: str = "", effect: str = "NoSchedule") -> Slices:
    """The slices with a taint on the devices whose names begin so."""
    found = copy.deepcopy(published)
    for device in (device for one in found for device in one["spec"].get("devices") or ()):
        if device["name"].startswith(starts):
            device["taints"] = [{"key": key, "value": value, "effect": effect}]
    return found


UUID = FakeMachine.open("hgx-h100").uuid(GPU)


@pytest.mark.parametrize("name", ["0", "0000:1B:00.0", NAME, f"{NAME}-mig-1g-10gb-3", UUID])
def test_a_gpu_is_found_by_its_index_its_address_its_devices_and_its_uuid(
    published: Slices, name: str
) -> None:
    assert find_gpu(published, "node-a", name) == GPU


@pytest.mark.parametrize("name", ["0000:ff:00.0", "GPU-nobody", "8", "None", ""])
def test_a_gpu_that_is_not_there_is_named_with_those_that_are(published: Slices, name: str) -> None:
    with pytest.raises(ConfigError, match=r"node-a publishes no GPU .*0000:1b:00\.0"):
        find_gpu(published, "node-a", name)


def test_what_all_devices_have_is_told_once_and_what_some_have_with_their_names(published: Slices) -> None:
    [one] = sick_gpu(tainted(published, taints.TAINT_XID, "gpu-0000-1b", value="95"), GPU).taints
    assert (str(one), one.all_devices) == ("gpu.nvidia.com/xid=95:NoSchedule", True)

    part = "gpu-0000-1b-00-0-mig-1g-10gb-3"
    [one] = sick_gpu(tainted(published, taints.TAINT_XID, part, value="94"), GPU).taints
    assert (one.devices, one.all_devices) == ((part,), False)
    assert sick_gpu(tainted(published, taints.TAINT_XID, "gpu-0000-1b"), OTHER).taints == ()


@pytest.mark.parametrize("key", [taints.TAINT_BLOCKED, taints.TAINT_CHANGING, taints.TAINT_DEVICE_PLUGIN])
def test_who_has_a_gpu_says_nothing_of_its_health(published: Slices, key: str) -> None:
    assert sick_gpu(tainted(published, key, "gpu-0000-1b"), GPU).remedy is None


def test_a_gpu_is_kept_free_when_none_of_its_devices_takes_a_pod(published: Slices) -> None:
    assert not is_kept_free(published, [GPU])
    blocked = tainted(published, taints.TAINT_BLOCKED, "gpu-0000-1b", value="healing")
    assert is_kept_free(blocked, [GPU])
    assert not is_kept_free(blocked, [GPU, OTHER])
    assert not is_kept_free(tainted(published, taints.TAINT_XID, "gpu-0000-1b", effect="None"), [GPU])
    assert not is_kept_free(tainted(published, taints.TAINT_XID, "gpu-0000-1b-00-0-mig"), [GPU])


def test_an_index_that_two_gpus_have_means_none(published: Slices) -> None:
    found = copy.deepcopy(published)
    for device in (device for one in found for device in one["spec"].get("devices") or ()):
        if device["name"] in ("gpu-0000-1b-00-0", "gpu-0000-43-00-0"):
            device["attributes"]["index"] = {"int": 7}
    with pytest.raises(ConfigError, match="publishes no GPU 7"):
        find_gpu(found, "node-a", "7")
