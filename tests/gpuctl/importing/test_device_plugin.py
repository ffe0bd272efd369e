"""Imported configurations of the device plugin are accepted, and give pods what they got before."""

from collections import Counter
from typing import Any

import pytest
import yaml

from gpuctl.importing.device_plugin import PluginConfig, Replicated
from gpuctl.importing.device_plugin_import import ImportedPlugin, device_classes, imported
from tests.clusters import Allocator, Object, compile_selector, defaulted_claim_spec, extended_requests
from tests.deviceclasses.published_nodes import devices, of_machine, plan, selectable
from tests.gpus import ConfigError

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
SLICE, SLICES = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.shared"


def one(resource: str = GPU, replicas: int = 4, offered_as: str = "", devices: Any = None) -> Replicated:
    return Replicated("r[0]", resource, replicas, offered_as or resource, devices)


def made(*resources: Replicated, mig: Any = "none", strategy: Any = "TimeSlicing") -> ImportedPlugin:
    return imported("c", PluginConfig(mig, strategy if resources else None, resources), "f.yaml")


def classes(found: ImportedPlugin) -> dict[str, Object]:
    text = device_classes([found], mixed=False)
    return {doc["spec"]["extendedResourceName"]: doc for doc in yaml.safe_load_all(text) if doc}


def shown(found: ImportedPlugin, machine: str, *, cut: bool = False) -> Counter[str]:
    """The ends of the names of the devices that a node with this configuration publishes."""
    names = [device["name"] for device in devices(plan(machine, found.text, cut=cut))]
    return Counter("-".join(name.split("-")[5:]) or "whole" for name in names)


def placed(found: ImportedPlugin, machine: str, resource: str, *, cut: bool = False) -> int:
    """How many pods with one of a resource a node with this configuration takes."""
    planned = plan(machine, found.text, cut=cut)
    allocator = Allocator(planned.slices, list(classes(found).values()), ())
    by_resource = classes(found)
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}}
    asked = extended_requests(pod, {resource: by_resource[resource]["metadata"]["name"]}).requests
    taken = 0
    while True:
        claim: Object = {
            "metadata": {"name": f"p{taken}", "namespace": "n", "uid": f"u{taken}"},
            "spec": defaulted_claim_spec({"devices": {"requests": asked}}),
        }
        allocations = allocator.allocate({"metadata": {"name": "node-a"}}, [claim])
        if allocations is None:
            return taken
        allocator.assume({**claim, "status": {"allocation": allocations[0]}})
        taken += 1


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (0, {"whole": 8}),
        (None, {"ts-4": 8}),
        (2, {"ts-4": 2, "whole": 6}),
        (("0", "5"), {"ts-4": 2, "whole": 6}),
        (("GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d", "3"), {"ts-4": 2, "whole": 6}),
        (("MIG-46f0a2e8-743c-5a04-880a-b4099fd6742d", "0:1"), {"whole": 8}),
    ],
)
def test_gpus_that_are_named_are_shared_and_the_others_whole(devices: Any, expected: dict[str, int]) -> None:
    found = made(*([] if devices == 0 else [one(devices=devices)]))

    assert shown(found, "hgx-h100") == Counter(expected)
    assert placed(found, "hgx-h100", GPU) == sum(
        4 if form == "ts-4" else 1 for form in Counter(expected).elements()
    )


@pytest.mark.parametrize("devices", [None, ("0", "1"), ("GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d",)])
def test_resources_that_nothing_tells_apart_are_refused(devices: Any) -> None:
    heavy = one(devices=("0",), offered_as="nvidia.com/heavy")
    light = one(devices=devices, offered_as="nvidia.com/light")

    with pytest.raises(ConfigError, match=r"heavy and nvidia\.com/light stand for shares that nothing"):
        classes(made(heavy, light))
    elsewhere = imported("d", PluginConfig("none", "TimeSlicing", (light,)), "f.yaml")
    told = device_classes([made(heavy), elsewhere], mixed=False)
    assert "# nvidia.com/heavy also selects the shares that are nvidia.com/light on other nodes" in told


def test_partitions_under_strategy_single_are_gpus_shared_or_not() -> None:
    whole, shared = made(mig="single"), made(one(replicas=2), mig="single")
    partitions = sum(shown(whole, "hgx-h100", cut=True).values())

    assert partitions > 8
    assert placed(whole, "hgx-h100", GPU, cut=True) == partitions
    assert placed(shared, "hgx-h100", GPU, cut=True) == 2 * partitions
    assert placed(shared, "hgx-h100", GPU) == 16


def test_partitions_under_strategy_mixed_are_resources_of_their_profile() -> None:
    found = made(one(SLICE, 2, SLICES), mig="mixed")
    cut = shown(found, "hgx-h100", cut=True)

    assert list(classes(found)) == [GPU, SLICES]
    assert placed(found, "hgx-h100", SLICES, cut=True) == 2 * sum(
        number for name, number in cut.items() if "static-1g-10gb" in name and "me" not in name
    )
    assert placed(found, "hgx-h100", GPU) == 8
    assert found.lost == (
        "r: partitions of all profiles are shared, and only the named profiles are resources",
    )


EVERY = [
    made(one(), mig=mig, strategy=strategy)
    for mig in ("none", "single", "mixed")
    for strategy in ("TimeSlicing", "MPS")
] + [
    made(one(offered_as=SHARED), one(SLICE, 2, SLICES), one("nvidia.com/mig-1g.10gb.me"), mig="mixed"),
    made(one(devices=("0",)), mig="single"),
    made(mig="mixed"),
    made(),
]


@pytest.mark.parametrize("found", EVERY)
def test_every_class_has_an_answer_for_every_device_and_meets_some_of_its_own(found: ImportedPlugin) -> None:
    own = [device for cut in (False, True) for device in devices(plan("hgx-h100", found.text, cut=cut))]
    others = of_machine("hgx-h100")
    for doc in classes(found).values():
        selector = compile_selector(doc["spec"]["selectors"][0]["cel"]["expression"])
        matched = [device["name"] for device in [*own, *others] if selector.matches(selectable(device))]
        assert {device["name"] for device in own} & set(matched)
