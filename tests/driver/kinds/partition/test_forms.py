"""Each MIG mode offers what the GPU can be made into now, and says why it keeps the rest back."""

from dataclasses import replace
from functools import cache

import pytest

from tests.driver.mig_machines import (
    Instances,
    device,
    look,
    make_instances,
    mig_of,
    rules,
    shapes,
    with_mode_on,
)
from tests.gpus import FakeMachine, Gpu, Inventory, Placement, node_offers

ONE_G, TWO_G, THREE_G = 19, 14, 9
NEEDS_RESET = "MIG mode is off and changes only with a GPU reset"


STATES: dict[str, Instances] = {
    **dict.fromkeys(("on", "unread"), ()),
    "cut": ((THREE_G, 4, (2,)), (ONE_G, 0, (0,)), (TWO_G, 2, (0, 0))),
    "media": ((20, 0, (0,)), (ONE_G, 1, (0,))),
    "hollow": ((ONE_G, 0, ()),),
}
"""What an admin has made of a GPU in MIG mode."""


@cache
def node(name: str) -> Inventory:
    """The first GPU of a machine, whose MIG may be in one of the states, ``unread``, or ``unreported``."""
    machine, _, state = name.partition(" ")
    fake = with_mode_on(machine) if state in STATES else FakeMachine.open(machine)
    make_instances(device(fake), STATES.get(state, ()))
    inventory = look(fake)
    first = inventory.gpus[0]
    if state == "unread":
        first = replace(first, mig=None)
    if state == "unreported":
        first = replace(first, mig=None, mig_capable=None)
    if state == "guest":
        first = replace(first, mig=None, virtualization="vgpu")
    return replace(inventory, gpus=(first,))


def only(inventory: Inventory) -> Gpu:
    [gpu] = inventory.gpus
    return gpu


STAYS_ON = "MIG mode is on and changes only with a GPU reset"
MODE_ON = "MIG mode is on, so the GPU cannot be used as a whole"
UNREPORTED = "NVML does not report its MIG profiles"
NO_MIG = "it has no MIG, so it cannot be partitioned"
NONE_FITS = "it has none of the MIG profiles of the configuration"
OTHER_PROFILES = "mig: {dynamic: {profiles: [1g.24gb]}}"
SOME_PROFILES = "mig: {dynamic: {profiles: [3g.40gb, 1g+me, 1g.24gb, 2g.12gb, 3g]}}"
STATIC = ["static-1g-10gb-0", "static-1c-2g-20gb-2-0", "static-1c-2g-20gb-2-1", "static-3g-40gb-4"]
INSTEAD = {"whole": "its static MIG partitions are offered instead"}
OF_A100 = [
    *(f"mig-1g-5gb-{start}" for start in (6, 5, 4, 3, 2, 1, 0)),
    *(f"mig-2g-10gb-{start}" for start in (4, 2, 0)),
    *(f"mig-3g-20gb-{start}" for start in (4, 0)),
    "mig-4g-20gb-0",
]
OF_H100 = [
    *(f"mig-1g-10gb-{start}" for start in (6, 5, 4, 3, 2, 1, 0)),
    *(f"mig-2g-20gb-{start}" for start in (4, 2, 0)),
    *(f"mig-3g-40gb-{start}" for start in (4, 0)),
    "mig-4g-40gb-0",
]


@pytest.mark.parametrize(
    ("machine", "rule", "shape", "withheld"),
    [
        ("hgx-h100 cut", "", STATIC, INSTEAD),
        ("hgx-h100 cut", "offer: partitions, mig: static", STATIC, {}),
        # One with media engines is not given out before a plain one.
        ("hgx-h100 media", "", ["static-1g-10gb-1", "static-1g-10gb-me-0"], INSTEAD),
        ("hgx-h100 on", "", [], {"gpu": "MIG mode is on, but no partition exists: make one, or turn MIG"}),
        ("hgx-h100 hollow", "", [], {"gpu": "none of its GPU instances has a compute instance"}),
        ("hgx-h100", "offer: partitions", [], {"gpu": "it has no partition, and the node configuration"}),
        ("hgx-h100", "mig: dynamic", [*OF_H100, "whole"], {}),
        ("hgx-h100 on", "mig: dynamic", [*OF_H100, "whole"], {}),
        ("hgx-h100", "offer: partitions, mig: dynamic", OF_H100, {}),
        # Full and short names are picked, one profile once; those of unlike GPUs are ignored.
        (
            *("hgx-h100", SOME_PROFILES),
            [
                *(f"mig-1g-10gb-me-{n}" for n in (6, 5, 4, 3, 2, 1, 0)),
                "mig-3g-40gb-4",
                "mig-3g-40gb-0",
                "whole",
            ],
            {},
        ),
        (
            *("a30-quad on", SOME_PROFILES),
            [*(f"mig-1g-6gb-me-{n}" for n in (3, 2, 1, 0)), "mig-2g-12gb-2", "mig-2g-12gb-0"],
            {"whole": STAYS_ON},
        ),
        ("hgx-h100", OTHER_PROFILES, ["whole"], {"partitions": NONE_FITS}),
        ("dgx-a100", "mig: dynamic", ["whole"], {"partitions": NEEDS_RESET}),
        ("dgx-a100", "offer: partitions, mig: dynamic", [], {"gpu": NEEDS_RESET}),
        ("dgx-a100 on", "mig: dynamic", OF_A100, {"whole": STAYS_ON}),
        ("dgx-a100 on", OTHER_PROFILES, [], {"gpu": NONE_FITS}),
        *((machine, "mig: dynamic", ["whole"], {}) for machine in ("l40s-octo", "t4", "a100-vgpu-guest")),
        ("hgx-h100 guest", "mig: dynamic", ["whole"], {}),
        (
            *("hgx-h100", "mig: {layout: all-balanced}"),
            ["mig-1g-10gb-3", "mig-1g-10gb-2", "mig-2g-20gb-0", "mig-3g-40gb-4"],
            {},
        ),
        ("hgx-h100", "mig: {layout: all-1g.5gb}", [], {"gpu": "the GPU has no profile 1g.5gb: its profiles"}),
        ("hgx-h100", "mig: {layout: [4g, 4g]}", [], {"gpu": "the layout 4g, 4g does not fit on it"}),
        ("hgx-h100", "mig: {layout: all-enabled}", [], {"gpu": "the layout all-enabled has no partitions"}),
        ("dgx-a100", "mig: {layout: all-1g}", [], {"gpu": NEEDS_RESET}),
        ("l40s-octo", "mig: {layout: all-1g}", [], {"gpu": NO_MIG}),
        ("a100-vgpu-guest", "mig: {layout: all-1g}", [], {"gpu": NO_MIG}),
        # Partitions of a GPU that does not tell may be in use.
        *(
            ("hgx-h100 unreported", f"mig: {mig}", [], {"gpu": UNREPORTED})
            for mig in ("dynamic", "{layout: all-1g}")
        ),
        ("hgx-h100", "mig: off", ["whole"], {}),
        ("hgx-h100 on", "mig: off", [], {"gpu": MODE_ON}),
        ("hgx-h100 unread", "", [], {"gpu": MODE_ON}),
        *(
            ("hgx-h100", f"offer: hidden, mig: {mig}", [], {"gpu": "the node configuration hides it"})
            for mig in ("static", "dynamic", "{layout: all-1g}")
        ),
    ],
)
def test_what_a_gpu_is_offered_as_and_why_not_as_something_else(
    machine: str, rule: str, shape: list[str], withheld: dict[str, str]
) -> None:
    offers = node_offers(node(machine), rules(rule) if rule else None)

    assert shapes(offers) == shape
    assert [one.part for one in offers.withheld] == list(withheld)
    assert all(one.reason.startswith(withheld[one.part]) for one in offers.withheld)
    are_counted = "dynamic" in rule and any(one.startswith("mig-") for one in shape)
    assert bool(offers.counter_sets) == are_counted
    assert {bool(one.counter_set) for one in offers.devices} <= {are_counted}
    plain = [one for one in offers.devices if "migWithheld" in one.attributes]
    reasons = [one.attributes["migWithheld"] for one in plain]
    assert reasons == [withheld[part] for part in withheld if part == "partitions"]
    assert all((set(one.capacity), one.consumes) == ({"memory"}, {}) for one in plain)


def test_a_static_partition_says_what_it_is() -> None:
    inventory = node("hgx-h100 cut")
    gpu = only(inventory)

    partition = node_offers(inventory).devices[-1]

    [made] = [one for one in mig_of(gpu).partitions if one.profile == "3g.40gb"]
    assert partition.attributes["uuid"] == made.uuid
    assert made.uuid.startswith("MIG-")
    assert partition.attributes["parentUUID"] == gpu.uuid
    assert partition.attributes["profile"] == "3g.40gb"
    assert partition.span == Placement(4, 4)
    assert partition.capacity == {
        "memory": 40448 * 2**20,
        "multiprocessors": 60,
        "copyEngines": 3,
        "decoders": 3,
        "encoders": 0,
        "jpegEngines": 3,
        "ofaEngines": 0,
        **{f"memorySlice{index}": 1 for index in (4, 5, 6, 7)},
    }


def test_only_a_partition_that_is_all_of_its_gpu_instance_has_memory_of_its_own() -> None:
    found = {
        one.attributes["profile"]: one.attributes["memoryIsolation"]
        for one in node_offers(node("hgx-h100 cut")).devices
    }
    assert found == {"1g.10gb": "hardware", "1c.2g.20gb": "none", "3g.40gb": "hardware"}


def test_the_whole_gpu_of_dynamic_mode_has_the_capacities_of_its_largest_profile() -> None:
    inventory = node("hgx-h100")

    whole = node_offers(inventory, rules("mig: dynamic")).devices[-1]

    assert whole.capacity == {
        "memory": only(inventory).memory_bytes,
        "multiprocessors": 132,
        "copyEngines": 8,
        "decoders": 7,
        "encoders": 0,
        "jpegEngines": 7,
        "ofaEngines": 1,
    }
    assert len(whole.attributes) + len(whole.capacity) <= 32
    assert "migWithheld" not in whole.attributes


def test_a_layout_and_dynamic_mode_give_a_partition_the_same_device_but_for_counters() -> None:
    inventory = node("hgx-h100")
    dynamic = {one.name: one for one in node_offers(inventory, rules("mig: dynamic")).devices}

    for partition in node_offers(inventory, rules("mig: {layout: {1g: 3, 3g.40gb: 1}}")).devices:
        assert replace(dynamic[partition.name], counter_set="", consumes={}) == partition


def test_a_partition_carries_what_selectors_ask_for() -> None:
    inventory = node("hgx-h100")
    offers = node_offers(inventory, rules("mig: dynamic"))
    whole, partition = offers.devices[-1], offers.devices[0]

    own = {"type": "mig", "parentUUID": only(inventory).uuid, "profile": "1g.10gb"}
    assert own.items() <= partition.attributes.items()
    same = partition.attributes.keys() - own.keys()
    assert same == {
        "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion",
        "cudaDriverVersion", "addressingMode", "index", "numaNode", "sharing", "memoryIsolation",
        "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pciBusID",
        "resource.kubernetes.io/pcieRoot",
    }  # fmt: skip
    assert {name: whole.attributes[name] for name in same} == {
        name: partition.attributes[name] for name in same
    }


def test_partitions_come_first_and_whole_gpus_with_counters_last_from_the_other_end() -> None:
    config = rules('when: "gpu.index < 2", mig: dynamic')
    inventory = look(FakeMachine.open("hgx-h100"))
    four = replace(inventory, gpus=tuple(reversed(inventory.gpus[:4])))

    devices = node_offers(four, config).devices

    assert [one.pci for one in devices[:26]] == [inventory.gpus[0].pci] * 13 + [inventory.gpus[1].pci] * 13
    assert [one.name for one in devices[26:]] == [
        "gpu-0000-52-00-0",
        "gpu-0000-61-00-0",
        "gpu-0000-43-00-0",
        "gpu-0000-1b-00-0",
    ]
