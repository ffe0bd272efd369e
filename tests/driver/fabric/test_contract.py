"""The fake and the binding over a C library keep one contract; what its child meets the binding tells."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from driver.fabric.api import FabricTimeout, NotShared
from driver.fabric.real import RealFabricManager
from tests import needs
from tests.driver.fabric.contract import CLAUSES, Scene
from tests.driver.fabric.stub_node import StubNode, build_stub
from tests.gpus import DriverRoots, FabricError, FakeMachine, NoFabricManager, PciAddress, load_machine
from tests.tracer import tracing

MACHINE = "hgx-h100-shared-nvswitch"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A libnvfm."""
    return build_stub(tmp_path_factory.mktemp("libnvfm"))


def _node(folder: Path, library: Path, *, identities: bool = False) -> StubNode:
    spec = load_machine(MACHINE).fabric_manager
    assert spec is not None
    return StubNode(folder, library, [sorted(one) for one in spec.partitions], identities=identities)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_fake_keeps_the_contract(clause: Callable[[Scene], None]) -> None:
    fabric = FakeMachine.open(MACHINE).fabric
    clause(Scene(fabric.manager(), fabric.stop, lambda keeps: fabric.start(keeps=keeps)))


@needs.GCC
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_binding_keeps_the_contract(
    tmp_path: Path, library: Path, clause: Callable[[Scene], None]
) -> None:
    node = _node(tmp_path / "root", library)
    clause(Scene(node.manager(), node.stop, lambda keeps: node.start(waits=keeps)))


@needs.GCC
@pytest.mark.parametrize("identities", [True, False])
def test_an_address_of_zeros_and_an_empty_uuid_are_not_known(
    tmp_path: Path, library: Path, identities: bool
) -> None:
    found = _node(tmp_path / "root", library, identities=identities).manager().partitions()
    gpus = [(gpu.physical_id, gpu.uuid, gpu.pci) for gpu in found[4].gpus]
    if identities:
        assert gpus == [(3, "GPU-3", PciAddress(0, 0x13, 0, 0)), (4, "GPU-4", PciAddress(0, 0x14, 0, 0))]
    else:
        assert gpus == [(3, None, None), (4, None, None)]


@needs.GCC
def test_a_fabric_manager_in_another_mode_has_no_partitions(tmp_path: Path, library: Path) -> None:
    node = _node(tmp_path / "root", library)
    node.start(shared=False)
    with pytest.raises(NotShared) as caught:
        node.manager().partitions()
    assert not caught.value.retryable
    fabric = FakeMachine.open("hgx-h100").fabric.manager()
    with pytest.raises(NotShared) as faked:
        fabric.partitions()
    assert str(faked.value) == str(caught.value)


@needs.GCC
def test_a_library_that_hangs_is_left_after_the_deadline(tmp_path: Path, library: Path) -> None:
    node = _node(tmp_path / "root", library)
    node.hang()
    with pytest.raises(
        FabricTimeout, match=r"fmActivateFabricPartition of partition 3 did not return within"
    ):
        node.manager(seconds=0.5).activate(3)


HANGS = """
import os, pathlib, threading
pathlib.Path({pids!r}).write_text(f"{{os.getpid()}}\\n")
threading.Event().wait()
"""


def test_a_call_that_cannot_be_ended_is_given_up_and_there_are_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, socket = tmp_path / "hangs.py", tmp_path / "root/run/nvidia-fabricmanager/socket"
    program.write_text(HANGS.format(pids=str(tmp_path / "pids")))
    monkeypatch.setattr("driver.fabric.libnvfm.__file__", str(program))
    monkeypatch.setattr("driver.fabric.real._KILL_SECONDS", 0.05)
    socket.parent.mkdir(parents=True)
    os.mknod(socket, stat.S_IFSOCK | 0o600)
    (tmp_path / "root/usr/lib64").mkdir(parents=True)
    (tmp_path / "root/usr/lib64/libnvfm.so.1").touch()
    manager = RealFabricManager(DriverRoots.fixed(tmp_path / "root"), 1.0, 1.0)

    with tracing(tmp_path / "pids") as tracer:
        for _ in range(4):
            with pytest.raises(FabricTimeout, match="did not return within 1 s"):
                manager.activate(3)
        with pytest.raises(FabricError, match="4 calls of the fabric manager wait in the kernel"):
            manager.activate(3)
        tracer.kill()
        tracer.wait()
        with pytest.raises(FabricTimeout):
            manager.activate(3)


@needs.GCC
def test_a_node_without_the_library_says_so(tmp_path: Path, library: Path) -> None:
    node = _node(tmp_path / "root", library)
    (tmp_path / "root/usr/lib64/libnvfm.so.1").unlink()
    assert node.manager().instance() is None
    with pytest.raises(NoFabricManager, match=r"libnvfm\.so\.1 is not on this node"):
        node.manager().partitions()
    (tmp_path / "root/usr/lib64/libnvfm.so").write_bytes(b"\x7fELF of another world")
    with pytest.raises(NoFabricManager, match=r"cannot load libnvfm\.so"):
        node.manager().partitions()


@needs.GCC
def test_what_is_not_below_the_driver_root_is_looked_for_below_that_of_the_host(
    tmp_path: Path, library: Path
) -> None:
    node = _node(tmp_path / "root", library)
    manager = RealFabricManager(DriverRoots.probed(node.root, tmp_path / "sys"))
    assert manager.instance() == node.manager().instance()
    assert len(manager.partitions()) == 15
