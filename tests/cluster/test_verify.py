"""``gpuctl verify --may-change`` with the real binding of NVML and the driver, over compiled libraries.

It runs in namespaces of its own, on a machine that has cgroup v2 and neither a kubelet nor another driver.
MIG is not in the compiled NVML, and passthrough needs a kernel that binds drivers; both are skipped.
"""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakegpu.cuda.compiled import compiled_libcuda
from gpuctl.verify.change.held_probe import CONTROL_GROUPS
from tests import needs
from tests.clusters import PACKAGE_ROOT, python_command, python_environment
from tests.eventually import eventually
from tests.gpuctl.documents import read_document
from tests.gpuctl.verify.subjects import machine_in, make_real_nodes
from tests.gpus import build_driver_root, build_sysfs
from tests.nvml_library.library import NvmlDouble, compile_nvml

pytestmark = [needs.ROOT, needs.GCC, needs.MAKES_NODES]

SECONDS = 120.0
LIMITS = "driver.limits"
"""The file by which the compiled libcuda knows the memory limits that NVML was told."""

_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
# $1 is sysfs of the GPUs. Process 2 of a machine is a thread of its kernel.
MACHINE = """
exec 3<&0
(printf kthreadd >/proc/self/comm; read -r never <&3) &
set -e
mount -t tmpfs -o mode=0755 tmpfs /var/lib
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind /sys/fs/cgroup "$1/fs/cgroup"
mkdir /var/lib/tmp
echo ready
read -r never
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with GPUs in namespaces of its own; ``process_id`` is its first process, seen from here."""

    folder: Path
    process_id: int

    def begin(self, *words: str) -> Verification:
        """Start ``gpuctl verify`` for its GPUs."""
        flags = ("--driver-root", str(self.folder / "driver"), "--sysfs-root", str(self.folder / "sys"))
        command = python_command("-m", "gpuctl", "verify", "--nvml", "real", *flags, *words)
        return Verification(
            subprocess.Popen(
                # As in a terminal: in a session of its own, and with Ctrl-C, which a background job ignores.
                self._inside("setsid", "--wait", "env", "--default-signal=INT", *command),
                env={**os.environ, **python_environment(PACKAGE_ROOT), "TMPDIR": "/var/lib/tmp"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def traces(self) -> Counter[str]:
        """What is on it now: processes, mounts, and files and control groups that a verification may make."""
        own, root = Path(f"/proc/{self.process_id}"), Path(f"/proc/{self.process_id}/root")
        space = (own / "ns/pid").readlink()
        found = [line.split()[4] for line in (own / "mountinfo").read_text().splitlines()]
        for process in Path("/proc").glob("[0-9]*"):
            # It may have ended meanwhile.
            with suppress(OSError):
                if (process / "ns/pid").readlink() == space:
                    found.append(_command(int(process.name)))
        for folder in ("var/lib", "run", "etc/cdi"):
            for path, folders, files in os.walk(root / folder):
                found += [f"{path}/{name}" for name in (*folders, *files)]
        for path, folders, _ in os.walk(root / "sys/fs/cgroup"):
            found += [f"{path}/{name}" for name in folders if name == CONTROL_GROUPS]
        return Counter(filter(None, found))

    def wait_until_only(self, before: Counter[str]) -> None:
        """Wait until nothing is on it that was not there before."""
        # A process that ends is there for a moment.
        eventually("nothing else is there", lambda: self.traces() - before, operator.not_, seconds=10)

    def _inside(self, *words: str) -> tuple[str, ...]:
        return ("nsenter", "--target", str(self.process_id), "--mount", "--pid", "--", *words)


@dataclass(frozen=True, slots=True)
class Verification:
    """A command that runs on the machine."""

    process: subprocess.Popen[str]

    def wait_for(self, step: str) -> None:
        """Read what it says until it begins a step."""
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.strip() == step:
                return
        raise AssertionError(f"it ended before the step {step!r}: {self.end()}, {said}")

    def interrupt(self) -> None:
        """Send it Ctrl-C, as a terminal does."""
        os.killpg(_children(self.process.pid)[0], signal.SIGINT)

    def kill(self, *, with_watchdog: bool) -> None:
        """Kill it, maybe with the process that would clear up after it."""
        (command,) = _children(self.process.pid)
        (watchdog,) = (one for one in _children(command) if "watchdog.py" in _command(one))
        for one in (watchdog, command) if with_watchdog else (command,):
            os.kill(one, signal.SIGKILL)

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns the exit code and its stdout."""
        output, said = self.process.communicate(timeout=SECONDS)
        sys.stderr.write(said)
        return self.process.returncode, output


def _children(process_id: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]


def _command(process_id: int) -> str:
    return Path(f"/proc/{process_id}/cmdline").read_text().replace("\0", " ")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """NVML and libcuda."""
    libcuda = compiled_libcuda()
    assert libcuda is not None
    return compile_nvml(tmp_path_factory.mktemp("libraries") / "nvml.so"), libcuda


@pytest.fixture
def machine(libraries: tuple[Path, bytes]) -> Iterator[Machine]:
    # Not in /dev/shm: a daemon of MPS and a container have another one.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="gpu-dra-") as made:
        folder = Path(made)
        fake = machine_in(folder, "l4-quad")
        root = build_driver_root(folder / "driver", fake, libcuda=libraries[1])
        make_real_nodes(root, fake)
        NvmlDouble.lay(root, fake, libraries[0]).write_limits_to(folder / LIMITS)
        sysfs = build_sysfs(folder, fake)
        for link in sysfs.glob("devices/**/iommu_group"):
            link.unlink()
        with subprocess.Popen(
            (*_UNSHARE, "sh", "-c", MACHINE, "sh", str(sysfs)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as unshare:
            assert unshare.stdout is not None
            assert unshare.stdout.readline() == "ready\n"
            (first,) = _children(unshare.pid)
            yield Machine(folder, first)
            assert unshare.stdin is not None
            unshare.stdin.close()


KINDS = ("whole", "time-slicing", "mps", "memory-limits")


def test_programs_get_what_claims_of_each_kind_promise(machine: Machine) -> None:
    before = machine.traces()

    code, output = machine.begin("--may-change", "-o", "json").end()

    report = read_document(output, "VerifyReport")
    results = {one["check"]: one for one in report["results"]}
    assert {name: one for name, one in results.items() if one["status"] == "fail"} == {}
    assert [results[kind]["status"] for kind in KINDS] == ["ok"] * len(KINDS)
    assert code == 0
    machine.wait_until_only(before)


def test_a_program_that_gets_more_memory_than_its_share_is_named(machine: Machine) -> None:
    before = machine.traces()
    (machine.folder / LIMITS).unlink()

    code, output = machine.begin("--may-change", "-o", "json").end()

    failed = [one for one in read_document(output, "VerifyReport")["results"] if one["status"] == "fail"]
    assert [one["check"] for one in failed] == ["memory-limits"]
    assert "more than its 11516 MiB" in failed[0]["message"]
    assert code == 3
    machine.wait_until_only(before)


@pytest.mark.parametrize(
    ("step", "with_watchdog"),
    [("whole: end the probes", False), ("mps: start a second probe beside the first", True)],
)
def test_nothing_is_left_after_a_kill_and_restore(
    machine: Machine, step: str, *, with_watchdog: bool
) -> None:
    before = machine.traces()
    verification = machine.begin("--may-change")
    verification.wait_for(step)

    verification.kill(with_watchdog=with_watchdog)
    verification.end()
    assert machine.traces() - before != {}
    code, output = machine.begin("--restore").end()

    assert code == 0, output
    machine.wait_until_only(before)


def test_nothing_is_left_after_ctrl_c(machine: Machine) -> None:
    before = machine.traces()
    verification = machine.begin("--may-change")
    verification.wait_for("time-slicing: start a second probe beside the first")

    verification.interrupt()
    code, output = verification.end()

    assert code == 130, output
    machine.wait_until_only(before)
