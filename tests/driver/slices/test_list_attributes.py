"""Attributes become lists in slices, and single values again when slices are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driver.devices.device import AttributeValue, Device
from driver.devices.limits import MAX_VALUES
from driver.hardware.gpu import Inventory
from driver.policy.offers import node_offers
from driver.policy.rules import NodeConfig
from driver.slices.list_attributes import NearNodes, has_lists, with_lists, without_lists
from driver.slices.specs import lay_out, read_devices
from kubernetes_rules.validation import slices
from tests.controller.mig_node import inventory

NUMA = "resource.kubernetes.io/numaNode"
NEAR = ((0, 1), (1, 0), (2,))
LISTS = NodeConfig(list_attributes=True)


def published(machine: str, near: NearNodes = NEAR, config: NodeConfig = LISTS) -> list[dict[str, Any]]:
    """The specs of a machine's slices."""
    found = inventory(machine, gpus=16)
    offers = node_offers(replace(found, pci=replace(found.pci, near_numa_nodes=near)), config)
    layout = lay_out(offers.devices, pool="n/gpu.nvidia.com", node="n", near_nodes=offers.near_nodes)
    assert layout.rejected == ()
    return [dict(spec) for spec in layout.specs]


def attributes(machine: str, near: NearNodes = NEAR) -> list[dict[str, Any]]:
    return [one["attributes"] for spec in published(machine, near) for one in spec["devices"]]


def test_without_a_word_in_the_configuration_nothing_is_a_list() -> None:
    assert not any(map(has_lists, published("dgx2", config=NodeConfig())))


def test_the_numa_node_comes_with_those_nearest_to_it() -> None:
    found = attributes("hgx-h100")

    assert {str(one[NUMA]) for one in found} == {"{'ints': [0, 1]}", "{'ints': [1, 0]}"}
    assert {str(one["numaNode"]) for one in found} == {"{'int': 0}", "{'int': 1}"}, (
        "as NVIDIA's driver has it"
    )


def test_a_numa_node_without_known_neighbours_is_a_list_of_one() -> None:
    assert attributes("hgx-h100", near=())[0][NUMA] == {"ints": [0]}


def test_nvlink_peers_are_a_list_of_indexes() -> None:
    assert attributes("a30-quad")[0]["nvlinkPeers"] == {"ints": [1]}


def test_two_gpus_have_a_value_of_the_mesh_in_common_exactly_if_they_are_linked() -> None:
    gpus = {one["index"]["int"]: one for one in attributes("dgx1-v100")}
    meshes = {index: set(one["nvlinkMesh"]["strings"]) for index, one in gpus.items()}

    linked = {
        (one, other)
        for one in gpus
        for other in gpus
        if one != other and not meshes[one].isdisjoint(meshes[other])
    }

    assert linked == {(one, other) for one, gpu in gpus.items() for other in gpu["nvlinkPeers"]["ints"]}
    assert {len(values) for values in meshes.values()} == {2}, "the mesh, and the one link out of it"
    assert len(linked) == 32, "each GPU of a cube mesh has four peers, one of them in the other mesh"


@pytest.mark.parametrize("machine", ["dgx2", "dgx1-v100", "hgx-h100", "hgx-h100-shared-nvswitch"])
def test_lists_stay_within_the_limits_of_the_api(machine: str) -> None:
    specs = published(machine, near=tuple((node, *range(8, 15)) for node in range(2)))

    for spec in specs:
        whole = {**spec, "pool": {**spec["pool"], "generation": 1}}
        assert slices.slice_spec_errors(whole, None) == []


def test_a_list_without_room_stays_a_single_value() -> None:
    many: dict[str, AttributeValue] = {f"a{number}": number for number in range(20)}
    own: dict[str, AttributeValue] = {NUMA: 0, "nvlinkPeers": ",".join(map(str, range(1, 30)))}

    (device,) = with_lists([Device("gpu-0", None, many | own)], ((0, 1, 2),))

    assert device.attributes[NUMA] == (0, 1, 2)
    assert device.attributes["nvlinkPeers"] == own["nvlinkPeers"]
    assert len(many) + 3 + 29 > MAX_VALUES


@pytest.mark.parametrize("machine", ["dgx2", "dgx1-v100", "hgx-h100", "passthrough-quad"])
def test_what_is_read_from_slices_has_single_values(machine: str) -> None:
    assert read_devices(published(machine))[0] == node_offers(inventory(machine, gpus=16)).devices


def test_a_spec_without_lists_keeps_everything_else() -> None:
    (spec,) = published("a30-quad")

    plain = without_lists(spec)

    assert not has_lists(plain)
    assert plain["devices"][0]["attributes"]["index"] == {"int": 0}
    assert without_lists(plain) is plain


def test_an_offer_without_lists_has_no_near_nodes() -> None:
    assert node_offers(Inventory()).near_nodes is None
    assert node_offers(Inventory(), LISTS).near_nodes == ()
