"""A container has of a GPU what CDI gives it, and nothing that the host has."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver.errors import NodeIncomplete
from driver.roots.root import Root
from envtest.embedded.node.cdi import ContainerView, Mount
from fakegpu.driver_files.driver_root import build_driver_root
from fakegpu.driver_files.elf_library import LIBRARY_FOLDER
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo import watchdog
from gpuctl.verify.change import runc
from gpuctl.verify.change.container import CONTROL_GROUP, Containers, PlainContainers, clear, containers_for
from gpuctl.verify.change.program import ContainerFailed
from gpuctl.verify.change.rootfs import hide, mount_point_of, mount_points
from kubeletplugin.claims.cdi.hook import Hook, driver_calls
from kubeletplugin.devices.host.driver_files import DriverFiles, DriverRoot
from tests.gpuctl.verify.subjects import machine_in, subject_of
from tests.needs import MAKES_NODES, RUNC

CDI_DEVICE = "k8s.gpu.nvidia.com/claim=one"
MACHINE = "hgx-h100"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
SECONDS = 20.0
SAY = "import json, sys; sys.stdout.write(json.dumps({}) + '\\n'); sys.stdout.flush(); sys.stdin.read()"
SEES = """
import glob, os, stat
numbers = {path: (os.major(os.stat(path).st_rdev), os.minor(os.stat(path).st_rdev))
           for path in glob.glob("/dev/nvidia*")}
def may_open(number):
    os.mknod("/dev/node", 0o600 | stat.S_IFCHR, number)
    try:
        os.close(os.open("/dev/node", os.O_RDONLY))
        return True
    except PermissionError:
        return False
    except OSError:
        return True
    finally:
        os.unlink("/dev/node")
"""


def saying(expression: str, before: str = "") -> tuple[str, ...]:
    """The command line of a program that prints a value, and stays until its stdin ends."""
    return sys.executable, "-c", f"{before}\n{SAY.format(expression)}"


def write_spec(folder: Path, root: Path, **more: Any) -> None:
    """A claim of the GPU of ``/dev/nvidia3``, with a library of the driver root."""
    nodes = [
        {"path": f"/dev/{name}", "hostPath": f"{root}/dev/{name}", "permissions": "rw"}
        for name in ("nvidia3", "nvidiactl")
    ]
    edits = {"deviceNodes": nodes, "env": ["NVIDIA_VISIBLE_DEVICES=void", "OF_CDI=a=b"], **more}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": CDI_DEVICE.partition("=")[0],
        "containerEdits": {
            "mounts": [
                {
                    "hostPath": f"{root}/{LIBRARY_FOLDER}/libcuda.so.580.95.05",
                    "containerPath": LIBRARY,
                    "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                }
            ]
        },
        "devices": [{"name": "one", "containerEdits": edits}],
    }
    folder.mkdir(exist_ok=True)
    (folder / "claim.json").write_text(json.dumps(spec))


def started(containers: Containers, cdi: Path, words: tuple[str, ...]) -> Any:
    """Start a container, and return what it printed."""
    return json.loads(containers.start(cdi, [CDI_DEVICE], words).line(SECONDS))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_driver_root(tmp_path / "driver", FakeMachine.open(MACHINE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "containers"
    made.mkdir()
    return made


@pytest.fixture
def real(folder: Path) -> Iterator[runc.RuncContainers]:
    program = runc.find_program()
    assert program is not None
    containers = runc.RuncContainers(program, folder, (str(shutil.which("mount")),))
    yield containers
    containers.close()
    assert not [path for path in folder.iterdir() if path.name != runc.STATE]


@RUNC
def test_a_container_has_the_nodes_the_files_and_the_variables_of_cdi_and_no_others(
    real: runc.RuncContainers, root: Path, tmp_path: Path
) -> None:
    write_spec(tmp_path / "cdi", root)

    expression = (
        f"dict(numbers=numbers, lib=os.path.getsize({LIBRARY!r}), env=dict(os.environ), "
        f"mount=os.path.exists({shutil.which('mount')!r}), processes=len(glob.glob('/proc/[0-9]*')))"
    )
    seen = started(real, tmp_path / "cdi", saying(expression, SEES))

    number = (root / "dev/nvidia3").stat().st_rdev
    expected = [os.major(number), os.minor(number)]
    assert seen["numbers"] == {"/dev/nvidia3": expected, "/dev/nvidiactl": expected}
    assert seen["lib"] == (root / LIBRARY_FOLDER / "libcuda.so.580.95.05").stat().st_size
    assert (seen["env"]["OF_CDI"], seen["env"]["NVIDIA_VISIBLE_DEVICES"]) == ("a=b", "void")
    assert seen["processes"] == 1
    assert not seen["mount"], "a file of the host that is to be hidden"
    assert shutil.which("mount"), "on the host it stays"
    assert not os.path.lexists(LIBRARY), "the mount point is in the container alone"
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@RUNC
def test_a_container_may_open_only_the_devices_that_cdi_allows(
    real: runc.RuncContainers, root: Path, tmp_path: Path
) -> None:
    # Numbers of loop-control and its neighbour, which no container may use by itself.
    allowed = {"path": "/dev/nvidia5", "hostPath": "/dev/null", "major": 10, "minor": 237}
    write_spec(tmp_path / "cdi", root, deviceNodes=[allowed])

    opened = "[may_open(os.makedev(10, minor)) for minor in (237, 238)]"

    assert started(real, tmp_path / "cdi", saying(opened, SEES)) == [True, False]


@RUNC
def test_hooks_of_cdi_run_and_one_that_fails_is_told(
    real: runc.RuncContainers, root: Path, tmp_path: Path
) -> None:
    note = (
        "import json, sys; state = json.load(sys.stdin); "
        "open(state['bundle'] + '/rootfs/tmp/hooked', 'w').write(state['id'])"
    )
    hook = {"hookName": "createContainer", "path": sys.executable, "args": ["python", "-c", note]}
    write_spec(tmp_path / "cdi", root, hooks=[hook])
    seen = started(real, tmp_path / "cdi", saying("open('/tmp/hooked').read()"))
    assert seen.startswith(runc.ID_PREFIX)
    assert not Path("/tmp/hooked").exists(), "it is in the container alone"

    failing = {**hook, "path": "/bin/sh", "args": ["sh", "-c", "echo no room >&2; exit 3"]}
    write_spec(tmp_path / "cdi", root, hooks=[failing])
    with pytest.raises(ContainerFailed, match=r"no room"):
        started(real, tmp_path / "cdi", saying("1"))


@RUNC
@pytest.mark.parametrize("folder_is_gone", [False, True])
def test_what_a_killed_process_left_is_cleared(
    real: runc.RuncContainers, root: Path, folder: Path, tmp_path: Path, *, folder_is_gone: bool
) -> None:
    write_spec(tmp_path / "cdi", root)
    stay = (sys.executable, "-c", "import sys, time; print(1, flush=True); sys.stdin.read(); time.sleep(600)")
    real.start(tmp_path / "cdi", [CDI_DEVICE], stay).line(SECONDS)
    assert runc.left_behind(folder)
    assert list(Path("/sys/fs/cgroup").rglob(f"{runc.ids_of(folder)}*"))
    if folder_is_gone:
        shutil.rmtree(folder)

    clear(folder)

    assert not folder.exists()
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    assert not [pid for pid in processes if watchdog.belongs(pid, str(folder))]
    assert not list(Path("/sys/fs/cgroup").rglob(f"{runc.ids_of(folder)}*"))
    folder.mkdir()


@pytest.mark.parametrize("hooked", [False, True], ids=["without a hook", "with a hook"])
def test_the_linker_is_told_where_the_driver_is_unless_a_hook_lists_it(*, hooked: bool) -> None:
    library = "/usr/local/nvidia/lib64/libcuda.so.580.95.05"
    calls = driver_calls(Hook("/usr/bin/nvidia-cdi-hook"), DriverFiles("580.95.05", (library,)))
    view = ContainerView(mounts={library: Mount(library, library, ())}, hooks=[*calls] if hooked else [])
    assert runc.linker_path(view) == ({} if hooked else {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"})


def test_a_plain_process_has_the_variables_and_the_pipes_of_the_hosts_mps(
    root: Path, folder: Path, tmp_path: Path
) -> None:
    machine = FakeMachine.open(f"fake:{MACHINE}@{tmp_path}/state")
    machine.pretend_cgroups(tmp_path / "cgroups")
    mounts = [{"hostPath": str(tmp_path), "containerPath": "/tmp/nvidia-mps"}]
    write_spec(tmp_path / "cdi", root, mounts=mounts, env=["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"])
    containers = PlainContainers(folder, machine.nvml())

    seen = started(containers, tmp_path / "cdi", saying("dict(os.environ)", "import os"))

    assert seen["FAKEGPU_VISIBLE_NODES"] == "/dev/nvidia3:/dev/nvidiactl"
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path)
    group = Path(f"{tmp_path}/cgroups/{seen[CONTROL_GROUP].removeprefix('/sys/fs/cgroup/')}")
    assert group.is_dir()
    containers.close()
    assert not group.exists()
    assert not list(folder.iterdir())
    assert not containers.isolated


def test_a_program_that_does_not_answer_is_told_with_what_it_said(
    root: Path, folder: Path, tmp_path: Path
) -> None:
    write_spec(tmp_path / "cdi", root)
    containers = PlainContainers(folder, FakeMachine.open(MACHINE).nvml())
    cdi = tmp_path / "cdi"
    gone = containers.start(cdi, [CDI_DEVICE], ("/bin/sh", "-c", "echo libcuda is broken >&2; exit 7"))
    with pytest.raises(ContainerFailed, match=r"exit code 7 .*libcuda is broken"):
        gone.line(SECONDS)
    silent = containers.start(cdi, [CDI_DEVICE], ("/bin/sh", "-c", "read line"))
    with pytest.raises(ContainerFailed, match=r"no line within 0.05 s"):
        silent.line(0.05)
    with pytest.raises(NodeIncomplete):
        containers.start(cdi, [f"{CDI_DEVICE}-other"], ("/bin/true",))
    containers.close()


def test_only_fake_gpus_get_plain_processes(folder: Path, tmp_path: Path) -> None:
    fake = subject_of(tmp_path, machine_in(tmp_path, "gh200"))
    real = replace(fake, places=replace(fake.places, nvml="real"))

    assert isinstance(containers_for(fake, folder), PlainContainers)
    found = containers_for(real, folder)

    if isinstance(found, str):
        assert "root" in found or "runc" in found
    else:
        assert found.isolated


def test_all_that_the_driver_installed_is_hidden(root: Path) -> None:
    files = DriverRoot(root).files()

    hidden = runc.driver_paths(files, Root.given(Path("/")))

    assert {LIBRARY, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/bin/nvidia-smi"} <= set(hidden)
    assert runc.driver_paths(files, Root.given(root)) == (str(root),)


def test_a_path_lies_on_the_innermost_mount() -> None:
    table = (
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "28 27 254:1 / /usr ro - ext4 /dev/vdb ro\n"
        "29 28 254:2 / /usr/my\\040files rw - ext4 /dev/vdc rw\n"
    )

    points = mount_points(table)

    found = [mount_point_of(path, points) for path in ("/usr/lib/a", "/usr/my files/a", "/etc", "/usr")]
    assert found == ["/usr", "/usr/my files", "/", "/usr"]


@MAKES_NODES
def test_a_whiteout_keeps_the_modes_of_the_folders_above_it(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    upper.mkdir()
    (lower / "usr/lib").mkdir(parents=True)
    (lower / "usr").chmod(0o711)

    for path in ("usr/lib", "usr/lib/libcuda.so.1", "usr/nvidia-smi"):
        hide(upper, str(lower), f"{lower}/{path}")

    assert stat.S_IMODE((upper / "usr").stat().st_mode) == 0o711
    assert sorted(path.name for path in (upper / "usr").iterdir()) == ["lib", "nvidia-smi"]
    assert (upper / "usr/lib").stat().st_rdev == 0
