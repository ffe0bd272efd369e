"""A group goes to vfio and comes back, from wherever it stands."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.devices.vfio.binder import FunctionRecord, GroupRecord
from kubeletplugin.devices.vfio.modules import VfioAlias
from kubeletplugin.devices.vfio.users import FunctionInDoubt
from tests.driver.hardware.pci_trees import at
from tests.gpus import NodeIncomplete, StorageError
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
from tests.plugin import FunctionInUse, FunctionNotMoved, User


@pytest.fixture
def scene(tmp_path: Path) -> GroupScene:
    return GroupScene(tmp_path)


@pytest.mark.parametrize(
    "stands",
    [
        {},
        {AUDIO: ("snd_hda_intel", "snd_hda_intel")},
        {GPU: ("nvidia", "vfio-pci")},
        {GPU: ("", None)},
        {USB: ("vfio-pci", None)},
        dict.fromkeys(FUNCTIONS, ("vfio-pci", None)),
    ],
    ids=["as at boot", "an override", "an override for vfio", "without a driver", "half bound", "bound"],
)
def test_all_of_it_is_bound_once_and_comes_back_as_it_stood(
    scene: GroupScene, stands: dict[str, tuple[str, str | None]]
) -> None:
    for address, (driver, override) in stands.items():
        scene.kernel.give(address, driver, override=override)
    before = scene.drivers(), scene.overrides()
    scene.bind()
    writes = scene.kernel.writes
    assert (scene.drivers(), writes == 0) == (BOUND, before[0] == BOUND)
    scene.bind()
    assert scene.kernel.writes == writes, "a second bind changes nothing"
    scene.restore()

    assert (scene.drivers(), scene.overrides()) == before
    assert scene.record == CLEAN


def test_the_record_has_each_function_before_the_first_change(scene: GroupScene) -> None:
    scene.bind()
    first = scene.steps[0]
    assert first == f"overriding {GPU}"
    assert [(one["pci"], one["driver"], one["override"]) for one in scene.record["functions"]] == [
        (address, OWN_DRIVERS[address], "") for address in FUNCTIONS
    ]


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
    scene.assert_as_before()


def test_a_missing_module_is_said_before_anything_is_changed(scene: GroupScene) -> None:
    scene.kernel.modules.clear()
    with pytest.raises(NodeIncomplete, match="cannot load the kernel module vfio_pci"):
        scene.bind()

    assert (scene.kernel.writes, scene.steps) == (0, [])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"fails": {f"{USB}/driver_override": errno.EBUSY}}, ""),
        ({"fails": {f"xhci_hcd/unbind {USB}": errno.EBUSY}}, ""),
        ({"fails": {f"drivers_probe {USB}": errno.EBUSY}}, ""),
        ({"refuses": {(USB, "vfio-pci")}}, "it was offered to vfio-pci, but it has no driver"),
        ({"ignores": f"{USB}/driver_override"}, "its driver_override was set to vfio-pci, but it has none"),
        ({"ignores": "xhci_hcd/unbind"}, "it was taken from xhci_hcd, but it has the driver xhci_hcd"),
        ({"ignores": f"drivers_probe {USB}"}, "it was offered to vfio-pci, but it has no driver"),
    ],
)
def test_what_fails_or_does_nothing_has_everything_undone(
    scene: GroupScene, spoil: dict[str, Any], words: str
) -> None:
    well = {name: getattr(scene.kernel, name) for name in spoil}
    for name, value in spoil.items():
        setattr(scene.kernel, name, value)
    with pytest.raises(FunctionNotMoved, match=f"{USB}: {words}.*retryable"):
        scene.bind()
    if "drivers_probe" in str(spoil):  # nor can it be given back, until the kernel has it
        assert scene.drivers() == {**OWN_DRIVERS, USB: ""}
    for name, value in well.items():
        setattr(scene.kernel, name, value)
    scene.restore()

    scene.assert_as_before()


def test_a_gpu_in_use_is_not_taken_and_a_pod_that_uses_it_is_told_to_the_log_alone(scene: GroupScene) -> None:
    pod = "3f0d8c1e-5b5d-4a59-9d5b-0d2f1c7f5e11"
    scene.users[GPU] = [User(4711, "train", pod, "c" * 64)]
    with pytest.raises(FunctionInUse, match=r"cannot take .* from nvidia: it is in use") as raised:
        scene.bind()

    assert (scene.kernel.writes, scene.drivers()) == (0, OWN_DRIVERS)
    assert pod not in str(raised.value)
    assert f"train (process 4711 of pod {pod})" in raised.value.logged
    scene.users[GPU] = [User(4711, "python3")]
    with pytest.raises(FunctionInUse, match=r"python3 \(process 4711\)"):
        scene.bind()


def test_a_function_that_a_machine_still_has_is_not_given_back_yet(scene: GroupScene) -> None:
    scene.bind()
    scene.users[GPU] = [User(99, "qemu-system-x86")]
    with pytest.raises(FunctionInUse, match="vfio-pci: it is in use"):
        scene.restore()
    assert scene.drivers() == {**OWN_DRIVERS, GPU: "vfio-pci"}
    scene.users.clear()
    scene.restore()

    scene.assert_as_before()


def test_an_unbind_that_does_not_come_back_leaves_a_function_in_doubt_until_it_has(scene: GroupScene) -> None:
    scene.kernel.late.add(GPU)
    with pytest.raises(FunctionInDoubt, match=f"{GPU} is unknown: .*taking it from nvidia"):
        scene.bind()
    writes = scene.kernel.writes
    for call in (scene.bind, scene.restore):
        with pytest.raises(FunctionInDoubt):
            call()
    assert scene.kernel.writes == writes

    scene.kernel.let_go()
    scene.bind()
    assert scene.drivers() == BOUND
    scene.restore()
    scene.assert_as_before()


def test_what_waits_for_one_function_keeps_no_other_from_being_given_back(scene: GroupScene) -> None:
    scene.bind()
    scene.kernel.late.add(USB)
    with pytest.raises(FunctionInDoubt):
        scene.restore()
    assert scene.drivers() == {**OWN_DRIVERS, USB: ""}
    scene.kernel.let_go()
    scene.restore()

    scene.assert_as_before()


@pytest.mark.parametrize("driver", ["uio_pci_generic", "vfio-pci"])
def test_a_function_that_somebody_else_moved_or_gave_an_override_is_left_to_that_driver(
    scene: GroupScene, driver: str
) -> None:
    scene.bind()
    (scene.tree.root / "bus/pci/drivers/uio_pci_generic").mkdir()
    scene.kernel.give(AUDIO, driver, override="uio_pci_generic")
    scene.restore()

    assert scene.drivers() == {**OWN_DRIVERS, AUDIO: "uio_pci_generic"}
    assert scene.overrides() == {AUDIO: "uio_pci_generic"}


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

    scene.assert_as_before()


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


def test_functions_that_somebody_has_offered_to_all_drivers_get_the_right_ones(scene: GroupScene) -> None:
    scene.kernel.rescans = True
    scene.kernel.takes[GPU] = "nouveau"
    (scene.tree.root / "bus/pci/drivers/nouveau").mkdir()
    scene.bind()
    assert scene.drivers() == BOUND
    scene.restore()

    scene.assert_as_before()


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
