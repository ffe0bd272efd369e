"""A GPU is reset when nobody has it, is taken back whatever happens, and keeps new pods away meanwhile."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driver.hardware.gpu import NvLink
from kubeletplugin.reports.healing.healer import reset_together
from tests.gpus import Gpu, PciAddress
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.plugin import HealProgress, HealRequest, ResetFailed, User

STEPS = (
    "sharing cleared",
    "persistence noted",
    "persistence off",
    "let go",
    "reset",
    "healed noted",
    "persistence on",
    "persistence put back",
)


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeNode]:
    """Four A30 or another machine: the first GPU has persistence mode on and compute mode prohibited."""
    found = FakeNode(tmp_path, getattr(request, "param", "a30-quad"), binds=True, on_disk=True)
    spoil(found)
    yield found
    found.stop()


def of(machine: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("node", [machine], indirect=True)


def spoil(node: FakeNode) -> None:
    """Have the first GPU in a mode that a reset ends, and with persistence mode on."""
    nvml = node.machine.nvml()
    nvml.init()
    device = nvml.device_by_pci(node.gpus[0])
    device.set_compute_mode("prohibited")
    device.set_persistence_mode(True)
    nvml.shutdown()


def was_reset(node: FakeNode, gpu: int = 0) -> bool:
    return node.machine.state.gpus[node.gpus[gpu]].compute_mode == "default"


def is_persistent(node: FakeNode, gpu: int = 0) -> bool:
    return node.machine.state.gpus[node.gpus[gpu]].persistence


def healed(node: FakeNode) -> list[PciAddress]:
    return [one.pci for one in node.watch.state().healed]


def heal(node: FakeNode, gpu: str = "", wait_seconds: float = 0.0) -> list[HealProgress]:
    return list(
        node.healer.heal(HealRequest(gpu or str(node.gpus[0]), reset=True, wait_seconds=wait_seconds))
    )


def waited_for(node: FakeNode) -> Iterator[HealProgress]:
    """A heal of the first GPU, for which somebody waits."""
    return node.healer.heal(HealRequest(str(node.gpus[0]), reset=True, wait_seconds=600.0))


def start_again(node: FakeNode) -> None:
    """What a crash ends is the process with all that it has open, which the test's process is not."""
    node.discovery.close()
    node.restart()


def failure(node: FakeNode) -> str:
    """Why a heal failed."""
    last = heal(node)[-1]
    assert last.step == "failed"
    assert not was_reset(node)
    assert not healed(node)
    assert not node.watch.state().blocked
    return last.message


@pytest.mark.parametrize("name", ["uuid", "device"])
def test_a_gpu_that_nobody_has_is_reset_and_has_its_persistence_mode_again(node: FakeNode, name: str) -> None:
    pci = node.gpus[0]
    names = {"uuid": node.machine.uuid(pci), "device": node.partition(0, "1g.6gb", 0)}

    steps = heal(node, names[name])

    assert [(one.step, one.gpus) for one in steps] == [("resets", (pci,)), ("healed", (pci,))]
    assert was_reset(node)
    assert is_persistent(node)
    assert node.gpu_reset.calls == [(pci,)]
    assert healed(node) == [pci]
    assert not node.watch.state().blocked


def test_who_only_asks_is_told_what_is_in_the_way_and_nothing_happens(node: FakeNode) -> None:
    ref = node.prepared("train", 0)
    node.machine.set_processes(0, (4711,))

    [seen] = node.healer.heal(HealRequest(str(node.gpus[0])))

    assert seen.step == "looked"
    assert [(one.namespace, one.name, one.uid) for one in seen.claims] == [("team", "train", ref.uid)]
    assert [one.pid for one in seen.processes] == [4711]
    assert not was_reset(node)
    assert node.steps.count("let go") == 0


def opened_by(node: FakeNode, *users: User) -> None:
    """Have these processes have each GPU open."""
    node.healer._users = lambda _function: users  # noqa: SLF001 - pretended processes have all one name


def comes_late(node: FakeNode) -> None:
    node.on_step = lambda name: node.machine.set_processes(0, (4711,)) if name == "let go" else None


def has_controller(node: FakeNode) -> None:
    node.controllers.joined("controller")
    node.controllers.answered("controller", 1, "a call of NVML hangs")


IN_THE_WAY: dict[str, tuple[Callable[[FakeNode], object], str]] = {
    "a claim": (lambda node: node.prepare(node.claim("train", 0)), "there are still claim team/train"),
    "a process": (lambda node: node.machine.set_processes(0, (4711,)), "there are still process 4711"),
    "a pod that calls its process so": (
        lambda node: opened_by(node, User(4711, "nvidia-persiste")),
        "there are still process 4711 (nvidia-persiste)",
    ),
    "a program of ours": (
        lambda node: opened_by(node, User(11, "gpu-dra-control", is_of_node=True)),
        "it is used by gpu-dra-control (process 11)",
    ),
    "a controller that does not let go": (has_controller, "controller of this node cannot release"),
    "a process that comes late": (comes_late, "it is used by pretended process (process 4711)"),
    "a program that has it open": (lambda node: node.handle(), "In use by another client"),
    "nvidia-smi": (
        lambda node: node.gpu_reset.failures.append(ResetFailed("nvidia-smi did not", "end it")),
        "nvidia-smi did not",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_the_way_keeps_the_gpu_as_it_was_and_is_named(
    node: FakeNode, spoil: Callable[[FakeNode], object], words: str
) -> None:
    kept = spoil(node)
    assert words in failure(node)
    assert is_persistent(node)
    assert node.discovery.identity(node.gpus[0]).uuid == node.machine.uuid(node.gpus[0])
    del kept


def test_programs_of_the_node_are_the_drivers_to_deal_with(node: FakeNode) -> None:
    opened_by(
        node, User(11, "nvidia-persiste", is_of_node=True), User(12, "nv-fabricmanage", is_of_node=True)
    )

    assert heal(node)[-1].step == "healed"


def test_new_pods_are_kept_away_while_a_claim_is_waited_for(node: FakeNode) -> None:
    ref = node.prepared("train", 0)
    steps = waited_for(node)

    waiting = next(steps)

    assert [one.name for one in waiting.claims] == ["train"]
    assert [(one.pci, one.span, one.reason) for one in node.watch.state().blocked] == [
        (node.gpus[0], None, "healing")
    ]
    node.unprepare(ref)
    assert [one.step for one in steps] == ["resets", "healed"]
    assert was_reset(node)


def test_who_waits_no_longer_calls_it_off(node: FakeNode) -> None:
    node.prepared("train", 0)
    steps = waited_for(node)
    next(steps)

    del steps

    assert not node.watch.state().blocked
    assert "there are still" in failure(node), "and another may begin"


def test_one_gpu_of_a_node_is_healed_at_a_time(node: FakeNode) -> None:
    node.prepared("train", 0)
    first = waited_for(node)
    next(first)

    assert "another GPU of this node is being healed" in heal(node, str(node.gpus[1]))[-1].message
    del first


def test_a_claim_that_comes_at_the_last_moment_keeps_its_gpu(node: FakeNode) -> None:
    steps = node.healer.heal(HealRequest(str(node.gpus[0]), reset=True))
    assert next(steps).step == "resets"
    node.prepared("train", 0)

    [last] = steps

    assert "because of new users: claim team/train" in last.message
    assert not was_reset(node)


def test_a_call_that_hangs_has_the_gpu_open_and_the_way_out_is_said(node: FakeNode) -> None:
    node.guard_seconds = 0.2
    start_again(node)
    node.machine.hang("persistence_mode", 0)
    assert "does not return" in (message := failure(node))
    assert "delete the plugin's pod on the node" in message
    node.machine.heal()


@pytest.mark.parametrize("gpu", [0, 1])
def test_a_gpu_that_does_not_come_back_is_not_called_healed(node: FakeNode, gpu: int) -> None:
    node.on_step = lambda name: node.machine.lose(gpu) if name == "reset" else None
    last = heal(node, str(node.gpus[gpu]))[-1]
    assert last.step == "failed"
    assert is_persistent(node) == (gpu == 1), "what cannot be asked is put back later"
    if gpu == 1:
        assert f"GPU {node.gpus[1]} was reset but does not answer" in last.message


@pytest.mark.parametrize("step", STEPS)
def test_any_step_can_be_the_last_before_a_crash(node: FakeNode, step: str) -> None:
    node.crash_after = step
    with pytest.raises(Crash):
        heal(node)
    start_again(node)
    node.healer.finish()

    done = was_reset(node)
    assert is_persistent(node), "as it was"
    assert not node.watch.state().blocked
    assert healed(node) == ([node.gpus[0]] if done and step != "reset" else [])
    node.prepared("train", 0)
    node.unprepare(node.claim("train", 0, uid=node.journal.entries()[0].uid))

    assert [one.message for one in heal(node)] == ["", ""]
    assert is_persistent(node)


def test_the_steps_are_those_that_crashes_are_tried_after(node: FakeNode) -> None:
    heal(node)
    assert tuple(node.steps) == STEPS


ONE, TWO, THREE, FOUR = (PciAddress(0, bus, 0, 0) for bus in (1, 2, 3, 4))


def gpu(pci: PciAddress, *peers: PciAddress, switches: int = 0, architecture: str | None = "Volta") -> Gpu:
    links = tuple(NvLink(peer, 2) for peer in peers)
    return Gpu(pci, f"GPU-{pci}", 0, 0, architecture=architecture, links=links, switch_links=switches)


BOARD = [gpu(ONE, switches=6), gpu(TWO, switches=6), gpu(THREE)]
CHAIN = [gpu(ONE, TWO), gpu(TWO, ONE, THREE), gpu(THREE, TWO), gpu(FOUR)]
NEWER, NAMELESS = (
    [gpu(ONE, TWO, architecture=age, switches=12), gpu(TWO, ONE, architecture=age, switches=12)]
    for age in ("Ampere", None)
)


@pytest.mark.parametrize(
    ("gpus", "pci", "together"),
    [
        (CHAIN, THREE, (ONE, TWO, THREE)),
        (CHAIN, FOUR, (FOUR,)),
        (BOARD, ONE, (ONE, TWO)),
        (NEWER, ONE, (ONE,)),
        (NAMELESS, ONE, (ONE,)),
        ([], ONE, (ONE,)),
    ],
    ids=["links over others", "no link", "NVSwitches", "newer GPUs", "of no known age", "nothing is known"],
)
def test_older_gpus_are_reset_with_all_that_nvlinks_connect_and_others_alone(
    gpus: list[Gpu], pci: PciAddress, together: tuple[PciAddress, ...]
) -> None:
    assert reset_together(pci, gpus) == together
