"""Which GPUs are offered to virtual machines, beside what, and why one is not."""

import pytest

from driver.kinds.passthrough.kind import (
    HANDED_OUT_BY_FUNCTIONS,
    IN_A_VGPU,
    NO_IOMMU,
    PASSTHROUGH,
    VIRTUAL_FUNCTIONS_ON,
)
from driver.kinds.whole import MODE_ON
from driver.policy.offers import HIDDEN_BY_RULE
from tests.driver.kinds.passthrough.seen_nodes import (
    AUDIO,
    BRIDGE,
    FIRST,
    NETWORK,
    OTHER,
    SECOND,
    SOUND,
    function,
    gpu,
    node,
    offered,
    reasons,
)
from tests.gpus import Offers, PciAddress, PciFunction, Region

ALONE, BESIDE = "offer: passthrough", "passthrough: true"
ONE, TWO = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"
VIRTUAL = [PciAddress.parse(f"0000:1b:00.{number}") for number in (4, 5)]


def names(offers: Offers) -> list[str]:
    return [device.name for device in offers.devices]


def pair(**said: object) -> list[PciFunction]:
    """Two GPUs that no IOMMU tells apart."""
    return [function(FIRST, iommu_group=7), function(SECOND, iommu_group=7, **said)]


def virtual(driver: str | None) -> list[PciFunction]:
    """A GPU with two virtual functions, each in a group of its own, that go with this driver."""
    physical = function(FIRST, virtual=tuple(VIRTUAL), total_virtual=16)
    functions = [
        function(pci, physical=FIRST, driver=driver, iommu_group=50 + index, device_id=0x26BA)
        for index, pci in enumerate(VIRTUAL)
    ]
    return [physical, *functions]


VM, VM2 = f"{ONE}-vfio", f"{TWO}-vfio"
BOTH = f"{ONE}-0000-43-00-0-vfio"
FIRST_GPU, SECOND_GPU = "0000:1b:00.0", "0000:43:00.0"
LOSES = "its IOMMU group 27 also has 0000:1b:00.2 (ice), which the node would lose"
CARD: dict[str, object] = {"vendor_id": 0x8086, "class_code": NETWORK, "iommu_group": 27}
NOT_ASKED_FOR = "its IOMMU group 7 also has 0000:43:00.0, which is not offered for passthrough"
OF_ANOTHER = "0000:43:00.0 of its IOMMU group: the kernel driver nouveau uses it"
BY_ADDRESS = "when: 'gpu.pciBusID == \"0000:1b:00.0\"'"
BY_NAME = "when: 'gpu.productName == \"NVIDIA L40S\"'"
SERVED, SLICED = "shared: {strategy: MPS, shares: 4}", "shared: {strategy: TimeSlicing, shares: 4}"

Row = tuple[list[PciFunction], tuple[str, ...], list[str], dict[str, str]]


def cannot(reason: str, *functions: PciFunction) -> list[Row]:
    """A GPU that is not passed through keeps its other forms where it has some."""
    return [
        ([*functions], (BESIDE,), [ONE], {f"{FIRST_GPU} passthrough": reason}),
        ([*functions], (ALONE,), [], {FIRST_GPU: reason}),
    ]


ROWS: list[Row] = [
    ([function(FIRST)], (), [ONE], {}),
    ([function(FIRST), function(SECOND)], (ALONE,), [VM, VM2], {}),
    ([function(FIRST)], (f"{SLICED}, {BESIDE}",), [f"{ONE}-ts-4", VM], {}),
    (
        *([function(FIRST)], (f"mig: {{layout: all-balanced}}, {BESIDE}",), [VM]),
        {f"{FIRST_GPU} partitions": "it has no MIG, so it cannot be partitioned"},
    ),
    *cannot(NO_IOMMU, function(FIRST, iommu_group=None)),
    *cannot(VIRTUAL_FUNCTIONS_ON, function(FIRST, virtual=(VIRTUAL[0],), total_virtual=16)),
    *cannot(LOSES, function(FIRST), function(OTHER, driver="ice", **CARD)),
    # What the node does not lose goes with the GPU: its own audio, a bridge, what nobody or vfio has.
    *(
        ([function(FIRST), beside], (ALONE,), [VM], {})
        for beside in (
            function(AUDIO, class_code=SOUND, driver="snd_hda_intel", iommu_group=27),
            function(OTHER, driver="pcieport", **{**CARD, "class_code": BRIDGE}),
            function(OTHER, driver=None, **CARD),
            function(OTHER, driver="vfio-pci", **CARD),
        )
    ),
    # One that vfio or nobody has is offered to virtual machines alone.
    *(
        ([function(FIRST, driver=driver)], (BESIDE,), [VM], {})
        for driver in (None, "vfio-pci", "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci")
    ),
    *(
        ([function(FIRST, driver=driver)], (ALONE,), [], {FIRST_GPU: f"the kernel driver {driver} uses it"})
        for driver in ("nouveau", "xvfiox", "nvidia-vgpu-vfio")
    ),
    (
        *([function(FIRST, driver="vfio-pci"), function(SECOND, driver=None)], ("offer: whole",), []),
        {
            FIRST_GPU: "its kernel driver is vfio-pci, not the NVIDIA driver",
            SECOND_GPU: "it has no kernel driver",
        },
    ),
    (
        *([function(FIRST, driver="vfio-pci"), function(SECOND, driver="vfio-pci")],),
        *((f"{BY_ADDRESS}, {ALONE}", "offer: hidden"), [VM], {SECOND_GPU: HIDDEN_BY_RULE}),
    ),
    (
        *([function(FIRST, driver="vfio-pci"), function(SECOND, driver="vfio-pci")],),
        *((f"{BY_NAME}, {ALONE}",), [VM, VM2], {}),
    ),
    (pair(), (f"when: gpu.index == 0, {ALONE}", BESIDE), [TWO, BOTH], {}),
    (
        *(pair(), (f"when: gpu.index == 0, {BESIDE}", "offer: whole"), [ONE, TWO]),
        {f"{FIRST_GPU} passthrough": NOT_ASKED_FOR},
    ),
    (pair(driver="nouveau"), (ALONE,), [], {FIRST_GPU: OF_ANOTHER, SECOND_GPU: OF_ANOTHER}),
    # Virtual functions are devices instead of their GPU; slots of vGPUs are none.
    *(
        (
            *(virtual("vfio-pci"), (rule,), ["gpu-0000-1b-00-4-vfio", "gpu-0000-1b-00-5-vfio"]),
            {FIRST_GPU: HANDED_OUT_BY_FUNCTIONS},
        )
        for rule in (ALONE, BESIDE)
    ),
    (virtual("nvidia"), (BESIDE,), [ONE], {f"{FIRST_GPU} passthrough": VIRTUAL_FUNCTIONS_ON}),
]


@pytest.mark.parametrize(("functions", "rules", "expected", "withheld"), ROWS)
def test_what_is_offered_to_virtual_machines_and_why_not(
    functions: list[PciFunction], rules: tuple[str, ...], expected: list[str], withheld: dict[str, str]
) -> None:
    found = offered(node(*functions), *rules)

    assert (names(found), reasons(found)) == (expected, withheld)
    assert found.doubts == ()
    consumed = {name for one in found.devices for name in one.consumed_sets}
    assert {one.name for one in found.counter_sets} == consumed
    beside = {ONE, f"{ONE}-ts-4"} & {*expected} and VM in expected
    assert bool(consumed) == bool(beside or (TWO in expected and BOTH in expected))


@pytest.mark.parametrize(
    ("told", "rule", "expected", "withheld"),
    [
        ({"mig_capable": True, "mig_enabled": True}, ALONE, [], {FIRST_GPU: MODE_ON}),
        ({"virtualization": "vgpu"}, BESIDE, [ONE], {f"{FIRST_GPU} passthrough": IN_A_VGPU}),
        (
            *({"cuda_compute_capability": "6.1"}, f"{SERVED}, {BESIDE}", [VM]),
            {f"{FIRST_GPU} shared": "MPS: its compute capability is 6.1.0"},
        ),
    ],
)
def test_what_nvml_tells_of_a_gpu_counts(
    told: dict[str, object], rule: str, expected: list[str], withheld: dict[str, str]
) -> None:
    found = offered(node(function(FIRST), told=(gpu(FIRST, **told),)), rule)

    assert (names(found), list(reasons(found))) == (expected, list(withheld))
    assert all(reasons(found)[part].startswith(reason) for part, reason in withheld.items())


def test_beside_the_whole_gpu_one_counter_says_who_has_it() -> None:
    found = offered(node(function(FIRST), function(SECOND)), BESIDE)
    assert names(found) == [TWO, ONE, f"{TWO}-vfio", f"{ONE}-vfio"]
    assert {one.name: dict(one.counters) for one in found.counter_sets} == {ONE: {"gpu": 1}, TWO: {"gpu": 1}}
    assert {(one.name, one.counter_set, tuple(one.consumes)) for one in found.devices} == {
        (name, gpu_name, ("gpu",)) for gpu_name in (ONE, TWO) for name in (gpu_name, f"{gpu_name}-vfio")
    }


def test_while_it_is_not_known_what_else_a_gpu_is_nothing_is_said_of_it() -> None:
    dumb = gpu(FIRST, unanswered=frozenset({"mig_mode"}))
    found = offered(node(function(FIRST), told=(dumb,)), BESIDE)
    assert names(found) == []
    assert [(one.pci, one.whole, one.away) for one in found.doubts] == [(FIRST, True, False)]


def test_rules_that_ask_what_only_nvml_tells_keep_a_gpu_elsewhere_back() -> None:
    found = offered(node(function(FIRST, driver="vfio-pci")), f"when: has(gpu.memoryBytes), {ALONE}", ALONE)
    assert names(found) == []
    assert "nothing reports memoryBytes" in reasons(found)["0000:1b:00.0"]


def test_more_than_two_gpus_of_a_group_go_together_only_alone() -> None:
    third = PciAddress.parse("0000:52:00.0")
    found = node(*pair(), function(third, iommu_group=7))
    assert names(offered(found, ALONE)) == [f"{ONE}-0000-43-00-0-0000-52-00-0-vfio"]
    beside = offered(found, BESIDE)
    assert not any(name.endswith("-vfio") for name in names(beside))
    assert all("offer them for passthrough only" in reason for reason in reasons(beside).values())


def test_the_kind_takes_all_of_the_gpus_in_a_name() -> None:
    name = f"{ONE}-0000-43-00-0-vfio"
    regions = (Region(FIRST), Region(SECOND))
    assert PASSTHROUGH.parse(name) == PASSTHROUGH.stored(name, {}) == PASSTHROUGH.place(name, {}) == regions
    assert PASSTHROUGH.parse(ONE) is None
    assert (PASSTHROUGH.title(name, {}), PASSTHROUGH.position(name)) == ("passthrough of 2 GPUs", "")
    assert PASSTHROUGH.title(f"{ONE}-vfio", {}) == "passthrough"
