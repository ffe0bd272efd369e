"""Builds the double of libnvidia-ml.so.1 with the C compiler, and reads what it was told (``nvml.c``)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.nvml.library import SONAME
from driver.roots.places import LIBRARY_FOLDERS
from tests.gpus import NO_LIMIT_BYTES, FakeMachine

_HERE = Path(__file__).parent
_C = ("-O1", "-Wall", "-Wextra", "-Werror")
SET, GET, INIT = "nvmlDeviceSetMemoryLimits", "nvmlDeviceGetMemoryLimits", "nvmlInit"
NOTHING_IS_SET = "NothingIsSet"
"""Its ``fail CODE`` is what Get says of a cgroup without limits."""

UNIT = "Unit"
"""Its words are the bytes in whose multiples hard limits are counted, rounded up."""


@dataclass(frozen=True, slots=True)
class Told:
    """A line of the record.

    ``what`` is ``set``, ``get``, ``lied`` for a set that was not done, ``gone`` for limits that ended with
    their cgroup, or ``ran`` for the first process of a container, which has its name in place of a path.
    """

    at_ns: int
    process_id: int
    what: str
    uuid: str
    code: int
    soft_bytes: int
    hard_bytes: int
    inode: int
    path: str

    @classmethod
    def read(cls, line: str) -> Told:
        """The line."""
        at, process, what, uuid, code, soft, hard, inode, path = line.split(" ", 8)
        return cls(int(at), int(process), what, uuid, int(code), int(soft), int(hard), int(inode), path)

    @property
    def holds(self) -> bool:
        """Whether a limit is there from then on."""
        return self.what == "set" and self.code == 0 and self.hard_bytes != NO_LIMIT_BYTES

    @property
    def ends(self) -> bool:
        """Whether a limit is not there any more from then on."""
        return self.what == "gone" or (self.what == "set" and self.code == 0 and not self.holds)


@dataclass(frozen=True, slots=True)
class NvmlDouble:
    """A library that was built below a driver root, and the folder of its files."""

    library: Path

    @classmethod
    def lay(cls, driver_root: Path, machine: FakeMachine, compiled: Path) -> NvmlDouble:
        """Lay a compiled one for the GPUs of a machine, in place of the library that the driver root has."""
        folder = driver_root / LIBRARY_FOLDERS[0]
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / f"libnvidia-ml.so.{machine.state.driver_version}"
        library.unlink(missing_ok=True)
        shutil.copyfile(compiled, library)
        (folder / SONAME).unlink(missing_ok=True)
        (folder / SONAME).symlink_to(library.name)
        double = cls(library)
        (double.files / "faults").mkdir(parents=True)
        (double.files / "machine").write_text("".join(_lines(machine)))
        double.forget()
        return double

    @property
    def files(self) -> Path:
        """The folder that the library reads and writes."""
        return self.library.parent / "nvml-double"

    @property
    def record_file(self) -> Path:
        """The record, into which the first processes of containers write, too."""
        return self.files / "record"

    def forget(self) -> None:
        """Begin anew: nothing is set, nothing was told, nothing is allocated, nothing is spoiled."""
        self.record_file.write_text("")
        self.record_file.chmod(0o666)
        for file in (self.files / "used", self.files / "modes", *(self.files / "faults").iterdir()):
            file.unlink(missing_ok=True)

    def record(self) -> tuple[Told, ...]:
        """What was told up to now, in order."""
        return tuple(map(Told.read, self.record_file.read_text().splitlines()))

    def spoil(self, call: str, words: str, uuid: str = "") -> None:
        """Have a call fail (``fail CODE``, or ``once CODE``), ``hang`` or ``lie`` from now on.

        With a UUID only the call of that GPU. ``call`` is a C function that asks a GPU something, or one of
        the constants of this module.
        """
        file = self.files / "faults" / (f"{call}-{uuid}" if uuid else call)
        file.with_name("new").write_text(words)
        file.with_name("new").rename(file)

    def heal(self) -> None:
        """Spoil nothing any more; calls that hang go on."""
        for file in (self.files / "faults").iterdir():
            file.unlink()

    def use(self, uuid: str, cgroup: str, used_bytes: int) -> None:
        """Have the programs of a cgroup hold so much of a GPU."""
        with (self.files / "used").open("a") as file:
            file.write(f"{uuid} {used_bytes} {cgroup}\n")

    def write_limits_to(self, file: Path) -> None:
        """Write the limits that are set from now on to a new file, which processes in containers see."""
        file.touch()
        (self.files / "limits").symlink_to(file)

    def pretend_cgroups(self, root: Path) -> None:
        """Take the folders below ``root`` for those of /sys/fs/cgroup, where there is no cgroup v2."""
        root.mkdir()
        (self.files / "cgroup-root").write_text(str(root))


def compile_nvml(target: Path, *options: str) -> Path:
    """Compile the library; ``-DWITHOUT_LIMITS`` makes one that is older than R615."""
    return _compiled("nvml.c", target, "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", *options)


def compile_first(target: Path) -> Path:
    """Compile what containers run as their first process; it needs no files of its own there."""
    return _compiled("first.c", target, "-static")


def _compiled(source: str, target: Path, *options: str) -> Path:
    subprocess.run(["gcc", *_C, *options, "-o", str(target), str(_HERE / source)], check=True)
    return target


def most_together(record: Sequence[Told], uuid: str) -> int:
    """The most that the hard limits on a GPU ever were, all together."""
    return max(sum(hard for _soft, hard in limits.values()) for limits in _states(record, uuid))


def limits_now(record: Sequence[Told], uuid: str) -> dict[str, tuple[int, int]]:
    """The soft and the hard limit of each cgroup on a GPU, as the record ends."""
    *_, last = _states(record, uuid)
    return last


def _states(record: Sequence[Told], uuid: str) -> Iterator[dict[str, tuple[int, int]]]:
    """The limits of each cgroup on a GPU, before the record and after each line of it."""
    limits: dict[str, tuple[int, int]] = {}
    yield {}
    for told in record:
        if told.uuid == uuid and told.holds:
            limits[told.path] = told.soft_bytes, told.hard_bytes
        elif told.uuid == uuid and told.ends:
            limits.pop(told.path, None)
        yield dict(limits)


def _lines(machine: FakeMachine) -> Iterator[str]:
    yield f"{machine.state.driver_version}\n"
    for pci, gpu in sorted(machine.state.gpus.items()):
        yield f"{machine.uuid(pci)} {pci} {gpu.minor} {machine.spec.product.memory_bytes}\n"
