"""A group goes to vfio and comes back, from wherever it stands."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.errors import NodeIncomplete, StorageError
from kubeletplugin.devices.vfio.binder import FunctionRecord, GroupRecord
from kubeletplugin.devices.vfio.modules import VfioAlias
from kubeletplugin.devices.vfio.users import FunctionInDoubt, FunctionInUse, FunctionNotMoved, User
from tests.driver.hardware.pci_trees import at
from tests.kubeletplugin.devices.vfio.group_scene import (
    AUDIO,
    BOUND,
    CLEAN,
    FUNCTIONS,
    GPU,
    OWN_DRIVERS,
    USB,
    GroupScene,
)


@pytest.fixture
def scene(tmp_path: Path) -> GroupScene:
    return GroupScene(tmp_path)


def test_all_of_it_comes_back_and_nothing_is_remembered(scene: GroupScene) -> None:
    scene.bind()
    scene.restore()

    assert scene.drivers() == OWN_DRIVERS
    assert scene.overrides() == {}
    assert scene.record == CLEAN


def test_the_record_has_each_function_before_the_first_change(scene: GroupScene) -> None:
    scene.bind()
    first = scene.steps[0]
    assert first == f"overriding {GPU}"
    assert [(one["pci"], one["driver"], one["override"]) for one in scene.record["functions"]] == [
        (address, OWN_DRIVERS[address], "") for address in FUNCTIONS
    ]


def test_a_second_bind_changes_nothing(scene: GroupScene) -> None:
    scene.bind()
    writes = scene.kernel.writes
    scene.bind()

    assert scene.kernel.writes == writes
    assert scene.drivers() == BOUND


@pytest.mark.parametrize(
    ("function", "own", "override"), [(AUDIO, "snd_hda_intel", "snd_hda_intel"), (GPU, "nvidia", "vfio-pci")]
)
def test_an_override_of_before_is_there_again(
    scene: GroupScene, function: str, own: str, override: str
) -> None:
    scene.kernel.give(function, own, override=override)
    scene.bind()
    scene.restore()

    assert scene.overrides() == {function: override}
    assert scene.drivers() == OWN_DRIVERS


def test_a_function_without_a_driver_goes_back_to_none(scene: GroupScene) -> None:
    scene.kernel.give(GPU, "")
    scene.bind()
    assert scene.drivers() == BOUND
    scene.restore()

    assert scene.drivers() == {**OWN_DRIVERS, GPU: ""}


def test_what_vfio_has_already_is_left_alone_and_not_given_back(scene: GroupScene) -> None:
    for address in FUNCTIONS:
        scene.kernel.give(address, "vfio-pci")
    scene.bind()
    assert scene.kernel.writes == 0
    assert scene.record == CLEAN
    scene.restore()

    assert scene.drivers() == BOUND


def test_the_rest_of_a_group_that_is_half_bound_elsewhere_is_bound_and_alone_given_back(
    scene: GroupScene,
) -> None:
    scene.kernel.give(USB, "vfio-pci")
    scene.bind()
    assert scene.drivers() == BOUND
    scene.restore()

    assert scene.drivers() == {**OWN_DRIVERS, USB: "vfio-pci"}


def test_a_driver_that_says_more_of_the_function_is_taken(scene: GroupScene) -> None:
    scene.kernel.modules["nvgrace_gpu_vfio_pci"] = "nvgrace-gpu-vfio-pci"
    scene.aliases = (
        VfioAlias("pci:v*d*sv*sd*bc*sc*i*", "vfio_pci"),
        VfioAlias("pci:v000010DEd00002330sv*sd*bc*sc*i*", "nvgrace_gpu_vfio_pci"),
    )
    for address, device in ((GPU, "00002330"), (AUDIO, "000022F7")):
        folder = scene.tree.root / "bus/pci/devices" / address
        (folder / "modalias").write_text(f"pci:v000010DEd{device}sv000010DEsd00001234bc03sc02i00\n")
    scene.bind()

    assert scene.drivers() == {**BOUND, GPU: "nvgrace-gpu-vfio-pci"}
    scene.restore()
    assert scene.drivers() == OWN_DRIVERS


def test_a_missing_module_is_said_before_anything_is_changed(scene: GroupScene) -> None:
    scene.kernel.modules.clear()
    with pytest.raises(NodeIncomplete, match="cannot load the kernel module vfio_pci"):
        scene.bind()

    assert (scene.kernel.writes, scene.steps) == (0, [])


@pytest.mark.parametrize(
    "words", [f"{USB}/driver_override", f"xhci_hcd/unbind {USB}", f"drivers_probe {USB}"]
)
def test_a_write_that_fails_has_everything_undone(scene: GroupScene, words: str) -> None:
    scene.kernel.fails[words] = errno.EBUSY
    with pytest.raises(FunctionNotMoved, match=f"{USB}: .*retryable"):
        scene.bind()
    if "probe" in words:  # nor can it be given back, until the kernel has it
        assert scene.drivers() == {**OWN_DRIVERS, USB: ""}
        scene.kernel.fails.clear()
        scene.restore()

    assert scene.drivers() == OWN_DRIVERS
    assert scene.record == CLEAN


def test_a_driver_that_refuses_has_everything_undone(scene: GroupScene) -> None:
    scene.kernel.refuses.add((AUDIO, "vfio-pci"))
    with pytest.raises(FunctionNotMoved, match=f"{AUDIO}: it was offered to vfio-pci, but it has no driver"):
        scene.bind()

    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)


def test_a_gpu_in_use_is_not_taken_and_its_user_is_named(scene: GroupScene) -> None:
    scene.users[GPU] = [User(4711, "python3")]
    with pytest.raises(
        FunctionInUse, match=r"cannot take .* from nvidia: it is in use: .*python3 \(process 4711\)"
    ):
        scene.bind()

    assert (scene.kernel.writes, scene.drivers()) == (0, OWN_DRIVERS)


def test_pods_that_use_it_are_told_to_the_log_alone(scene: GroupScene) -> None:
    pod = "3f0d8c1e-5b5d-4a59-9d5b-0d2f1c7f5e11"
    scene.users[GPU] = [User(4711, "train", pod, "c" * 64)]
    with pytest.raises(FunctionInUse) as raised:
        scene.bind()

    assert pod not in str(raised.value)
    assert f"train (process 4711 of pod {pod})" in raised.value.logged


def test_a_function_that_a_machine_still_has_is_not_given_back_yet(scene: GroupScene) -> None:
    scene.bind()
    scene.users[GPU] = [User(99, "qemu-system-x86")]
    with pytest.raises(FunctionInUse, match="vfio-pci: it is in use"):
        scene.restore()
    assert scene.drivers() == {**OWN_DRIVERS, GPU: "vfio-pci"}
    scene.users.clear()
    scene.restore()

    assert (scene.drivers(), scene.record) == (OWN_DRIVERS, CLEAN)


def test_an_unbind_that_does_not_come_back_leaves_the_function_in_doubt(scene: GroupScene) -> None:
    scene.kernel.late.add(GPU)
    with pytest.raises(FunctionInDoubt, match=f"{GPU} is unknown: .*taking it from nvidia"):
        scene.bind()
    writes = scene.kernel.writes
    for call in (scene.bind, scene.restore):
        with pytest.raises(FunctionInDoubt):
            call()

    assert scene.kernel.writes == writes
    assert scene.record["functions"][0]["done"] == "unbinding"


def test_bind_goes_on_with_a_function_that_was_in_doubt(scene: GroupScene) -> None:
    scene.kernel.late.add(GPU)
    with pytest.raises(FunctionInDoubt):
        scene.bind()
    scene.kernel.let_go()
    scene.bind()

    assert scene.drivers() == BOUND
    scene.restore()
    assert (scene.drivers(), scene.overrides()) == (OWN_DRIVERS, {})


def test_what_waits_for_one_function_keeps_no_other_from_being_given_back(scene: GroupScene) -> None:
    scene.bind()
    scene.kernel.late.add(USB)
    with pytest.raises(FunctionInDoubt):
        scene.restore()
    assert scene.drivers() == {**OWN_DRIVERS, USB: ""}
    scene.kernel.let_go()
    scene.restore()

    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)


def test_a_function_that_somebody_else_moved_is_left(scene: GroupScene) -> None:
    scene.bind()
    scene.kernel.give(AUDIO, "uio_pci_generic", override="uio_pci_generic")
    scene.restore()

    assert scene.drivers() == {**OWN_DRIVERS, AUDIO: "uio_pci_generic"}
    assert scene.overrides() == {AUDIO: "uio_pci_generic"}


def test_an_override_that_somebody_else_wrote_decides(scene: GroupScene) -> None:
    scene.bind()
    scene.kernel.give(AUDIO, "vfio-pci", override="uio_pci_generic")
    (scene.tree.root / "bus/pci/drivers/uio_pci_generic").mkdir()
    scene.restore()

    assert scene.drivers() == {**OWN_DRIVERS, AUDIO: "uio_pci_generic"}


def test_what_somebody_else_moves_during_the_bind_is_left_and_the_rest_undone(scene: GroupScene) -> None:
    scene.kernel.late.add(GPU)
    with pytest.raises(FunctionInDoubt):
        scene.bind()
    scene.kernel.let_go()
    scene.kernel.give(AUDIO, "uio_pci_generic")
    with pytest.raises(FunctionNotMoved, match=f"another program bound {AUDIO} to uio_pci_generic"):
        scene.bind()

    assert scene.drivers() == {**OWN_DRIVERS, AUDIO: "uio_pci_generic"}
    assert scene.overrides() == {}


def test_a_driver_that_is_gone_leaves_the_function_for_when_it_is_loaded(scene: GroupScene) -> None:
    scene.bind()
    (scene.tree.root / "bus/pci/drivers/nvidia").rmdir()
    scene.restore()

    assert scene.drivers() == {**OWN_DRIVERS, GPU: ""}
    assert (scene.overrides(), scene.record) == ({}, CLEAN)


def test_a_driver_that_does_not_take_its_function_back_is_said_again_and_again(scene: GroupScene) -> None:
    scene.bind()
    scene.kernel.refuses.add((GPU, "nvidia"))
    for _ in range(2):
        with pytest.raises(FunctionNotMoved, match=f"{GPU}: it was offered to nvidia"):
            scene.restore()
    assert scene.overrides() == {}
    scene.kernel.refuses.clear()
    scene.restore()

    assert (scene.drivers(), scene.record) == (OWN_DRIVERS, CLEAN)


def test_a_function_that_is_gone_from_the_bus_is_passed_by(scene: GroupScene) -> None:
    scene.bind()
    (scene.tree.root / "bus/pci/devices" / USB).unlink()
    scene.restore()

    assert scene.record == CLEAN
    assert {address: scene.kernel.driver(address) for address in (GPU, AUDIO)} == {
        GPU: "nvidia",
        AUDIO: "snd_hda_intel",
    }


def test_without_a_journal_nothing_is_changed(scene: GroupScene) -> None:
    def full(step: str, record: object) -> None:
        del step, record
        raise StorageError("the disk is full")

    with pytest.raises(StorageError):
        scene.binder().bind(at(GPU), [at(GPU)], {}, full)

    assert (scene.kernel.writes, scene.drivers()) == (0, OWN_DRIVERS)


@pytest.mark.parametrize(
    ("ignored", "words"),
    [
        (f"{USB}/driver_override", "its driver_override was set to vfio-pci, but it has none"),
        ("xhci_hcd/unbind", "it was taken from xhci_hcd, but it has the driver xhci_hcd"),
        (f"drivers_probe {USB}", "it was offered to vfio-pci, but it has no driver"),
    ],
)
def test_what_the_kernel_says_to_have_done_is_looked_after(
    scene: GroupScene, ignored: str, words: str
) -> None:
    scene.kernel.ignores = ignored
    with pytest.raises(FunctionNotMoved, match=f"{USB}: {words}"):
        scene.bind()
    scene.kernel.ignores = "nothing"
    scene.restore()

    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)


def test_functions_that_somebody_has_offered_to_all_drivers_get_the_right_ones(scene: GroupScene) -> None:
    scene.kernel.rescans = True
    scene.kernel.takes[GPU] = "nouveau"
    (scene.tree.root / "bus/pci/drivers/nouveau").mkdir()
    scene.bind()
    assert scene.drivers() == BOUND
    scene.restore()

    assert (scene.drivers(), scene.overrides(), scene.record) == (OWN_DRIVERS, {}, CLEAN)


RECORDED = FunctionRecord("0000:81:00.0", "nvidia", "", "vfio-pci", "probing")


def test_what_is_written_is_read_again() -> None:
    written = GroupRecord((), {"node": "/dev/vfio/7"}).put(RECORDED).written

    assert GroupRecord.read(json.loads(json.dumps(written))) == GroupRecord(
        (RECORDED,), {"node": "/dev/vfio/7"}
    )


def test_a_step_and_a_field_of_a_newer_version_count_as_a_change() -> None:
    written = GroupRecord((RECORDED,), {}).written
    (one,) = written["functions"]
    newer = {"functions": [{**one, "done": "resetting", "reset": True}]}

    (read,) = GroupRecord.read(newer).functions
    assert read.may_have_changed
    assert (read.driver, read.vfio) == ("nvidia", "vfio-pci")


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
def test_nonsense_is_no_function(functions: object) -> None:
    assert GroupRecord.read({"functions": functions}).of(at("0000:81:00.0")) is None
