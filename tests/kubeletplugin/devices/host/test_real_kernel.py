"""Calls of the kernel are made by children, so that none of them can keep the plugin.

A FIFO without anybody at its other end plays the file of a kernel that does not answer.
"""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kubeletplugin.devices.host import kernel_child
from kubeletplugin.devices.host.kernel import MOST_STUCK, RealKernel
from tests import needs
from tests.eventually import eventually

SOON, LONG = 0.2, 30.0


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """A file whose writers and readers wait until the test is over."""
    path = tmp_path / "stuck"
    os.mkfifo(path)
    return path


@pytest.fixture
def kernel(tmp_path: Path, stuck: Path) -> Iterator[RealKernel]:
    kernel, before = RealKernel(tmp_path / "host", tmp_path / "sys"), set(_processes())
    yield kernel
    both_ends = os.open(stuck, os.O_RDWR | os.O_NONBLOCK)  # lets go of whoever waits
    os.write(both_ends, b"x")
    for pid in set(_processes()) - before:
        _wait(pid)
    os.close(both_ends)
    kernel.read(Path("/proc/self/comm"), LONG)  # it clears away what has ended


def let_go(fifo: Path) -> int:
    """Have a reader at the other end, once a child has come to write; its file descriptor."""
    return os.open(fifo, os.O_RDONLY)


def test_what_is_written_and_what_is_read_arrive_as_they_are(kernel: RealKernel, tmp_path: Path) -> None:
    file = tmp_path / "driver_override"
    file.write_text("(null)\n")
    kernel.write(file, "\n", LONG)

    assert file.read_text() == kernel.read(file, LONG) == "\nnull)\n"


@pytest.mark.parametrize("call", ["write", "read"])
def test_the_number_of_the_kernel_comes_through(kernel: RealKernel, tmp_path: Path, call: str) -> None:
    with pytest.raises(OSError, match="No such file") as raised:
        _call(kernel, call, tmp_path / "nothing")

    assert raised.value.errno == errno.ENOENT
    assert not (tmp_path / "nothing").exists()


def test_a_file_that_does_not_take_the_write_says_so(kernel: RealKernel) -> None:
    with pytest.raises(OSError, match="No space left") as raised:
        kernel.write(Path("/dev/full"), "0000:81:00.0", LONG)

    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize("call", ["write", "read"])
def test_a_kernel_that_does_not_answer_is_left_in_time(kernel: RealKernel, stuck: Path, call: str) -> None:
    with pytest.raises(TimeoutError):
        _call(kernel, call, stuck, SOON)


def test_the_same_write_is_not_begun_again_while_it_is_under_way(kernel: RealKernel, stuck: Path) -> None:
    for _ in range(MOST_STUCK + 1):
        with pytest.raises(TimeoutError):
            kernel.write(stuck, "once", SOON)
    assert len(_children()) == 1
    reader = let_go(stuck)
    assert _read_all(reader) == b"once"
    os.close(reader)


def test_a_write_that_has_ended_meanwhile_is_begun_anew(kernel: RealKernel, stuck: Path) -> None:
    with pytest.raises(TimeoutError):
        kernel.write(stuck, "first", SOON)
    writers = _children()  # one that ends has no command line any more, and still its pipe
    reader = let_go(stuck)
    assert _read_all(reader) == b"first"
    os.close(reader)
    for pid in writers:
        _wait(pid)
    with pytest.raises(TimeoutError):
        kernel.write(stuck, "first", SOON)


def test_so_many_that_wait_and_no_more(kernel: RealKernel, stuck: Path, tmp_path: Path) -> None:
    for number in range(MOST_STUCK):
        with pytest.raises(TimeoutError):
            kernel.write(stuck, str(number), SOON)
    file = tmp_path / "driver_override"
    file.write_text("")
    with pytest.raises(BlockingIOError, match=f"{MOST_STUCK} calls wait in the kernel"):
        kernel.write(file, "vfio-pci", LONG)
    reader = let_go(stuck)
    for number in range(MOST_STUCK):
        kernel.write(stuck, str(number), LONG)
    os.close(reader)
    kernel.write(file, "vfio-pci", LONG)

    assert file.read_text() == "vfio-pci"


def test_a_child_that_is_killed_is_an_error_and_not_a_success(kernel: RealKernel, stuck: Path) -> None:
    def kill() -> None:
        os.kill(eventually("a child waits", _children)[0], signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        with pytest.raises(OSError, match="ended too early"):
            kernel.write(stuck, "killed", LONG)
        killed.result()


def test_a_child_has_nothing_open_of_this_process(kernel: RealKernel, stuck: Path, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        with pytest.raises(TimeoutError):
            kernel.write(stuck, "open", SOON)
        folder = Path(f"/proc/{_children()[0]}/fd")
        held = {str(file.readlink()) for file in folder.iterdir()}

    assert str(tmp_path / "lock") not in held


def test_a_child_whose_parent_has_ended_does_nothing(tmp_path: Path) -> None:
    file = tmp_path / "driver_override"
    file.write_text("")
    command = [sys.executable, "-I", "-S", kernel_child.__file__, "1", "write", str(file), "late"]
    ended = subprocess.run(command, capture_output=True, check=True)

    assert (file.read_text(), ended.stdout) == ("", f"\n{errno.ECANCELED}".encode())


def test_a_loaded_module_needs_no_program(kernel: RealKernel, tmp_path: Path) -> None:
    (tmp_path / "sys/module/vfio_pci").mkdir(parents=True)

    kernel.load_module("vfio-pci", LONG)


@needs.CHANGES_ROOT
def test_a_host_without_modprobe_says_so(kernel: RealKernel, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    with pytest.raises(FileNotFoundError):
        kernel.load_module("vfio-pci", LONG)


@needs.CHANGES_ROOT
@needs.BUSYBOX
@pytest.mark.parametrize(
    ("says", "code", "error"),
    [
        ("", 0, None),
        ("modprobe: FATAL: Module vfio-pci not found in directory /lib/modules/6.1", 1, errno.ENOENT),
        ("modprobe: ERROR: could not insert 'vfio_pci': Operation not permitted", 1, errno.EIO),
    ],
)
def test_the_modprobe_of_the_host_is_run_below_its_root(
    kernel: RealKernel, tmp_path: Path, says: str, code: int, error: int | None
) -> None:
    _host(tmp_path / "host", says, code)
    if error is None:
        kernel.load_module("vfio-pci", LONG)
    else:
        with pytest.raises(OSError, match="modprobe: ") as raised:
            kernel.load_module("vfio-pci", LONG)
        assert raised.value.errno == error

    assert (tmp_path / "host/told").read_text() == "-- vfio-pci\n"


def _host(root: Path, says: str, code: int) -> None:
    """A root with busybox in it, and a modprobe that writes down what it is told."""
    for folder in ("bin", "sbin"):
        (root / folder).mkdir(parents=True)
    (root / "bin/busybox").write_bytes(Path(str(shutil.which("busybox"))).read_bytes())
    modprobe = root / "sbin/modprobe"
    modprobe.write_text(f'#!/bin/busybox sh\necho "$*" > /told\necho "{says}" >&2\nexit {code}\n')
    for program in (root / "bin/busybox", modprobe):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)


def _call(kernel: RealKernel, call: str, path: Path, seconds: float = LONG) -> None:
    if call == "write":
        kernel.write(path, "0000:81:00.0", seconds)
    else:
        kernel.read(path, seconds)


def _processes() -> list[int]:
    """The processes that this one has started and not yet done with, also those that have just ended."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _wait(pid: int) -> None:
    """Wait until a process has ended, and leave it to whoever started it."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _children() -> list[int]:
    """The children that talk to the kernel; one that is ending has no command line any more."""
    found = []
    for pid in _processes():
        with suppress(FileNotFoundError, ProcessLookupError):  # another thread has done with it meanwhile
            if "kernel_child" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


def _read_all(reader: int) -> bytes:
    os.set_blocking(reader, True)
    data = b""
    while more := os.read(reader, 100):
        data += more
    return data
