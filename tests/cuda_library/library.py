"""Builds the double of libcuda.so.1 with the C compiler, and lays it out for a machine (``cuda.c``)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.probe.cuda import LIBRARY

_C = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")
WITHOUT_V2 = "-DWITHOUT_UUID_V2"
"""Makes a library as old as R465: no UUIDs of MIG devices, no attribute about MPS."""


@dataclass(frozen=True, slots=True)
class Described:
    """A device of the library; ``uuid`` differs from ``gpu_uuid`` for a MIG device."""

    gpu_uuid: str
    uuid: str
    capability: tuple[int, int]
    total_bytes: int
    name: str

    def line(self) -> str:
        """The line that the library reads."""
        uuids = " ".join(one.partition("-")[2] for one in (self.gpu_uuid, self.uuid))
        major, minor = self.capability
        return f"{uuids} {major}.{minor} {self.total_bytes} {self.name}\n"


@dataclass(frozen=True, slots=True)
class CudaDouble:
    """A library that was laid into a folder of its own, and the folder of its files."""

    library: Path

    @classmethod
    def lay(cls, folder: Path, devices: Iterable[Described], compiled: Path) -> CudaDouble:
        """Lay a compiled library for these devices."""
        double = cls(folder / LIBRARY)
        (double.files / "faults").mkdir(parents=True)
        shutil.copyfile(compiled, double.library)
        (double.files / "machine").write_text("13040\n" + "".join(one.line() for one in devices))
        return double

    @property
    def files(self) -> Path:
        """The folder that the library reads."""
        return self.library.parent / "cuda-double"

    def spoil(self, call: str, words: str) -> None:
        """Have a call fail (``fail CODE``), fail ``once CODE``, ``hang`` or ``lie`` from now on."""
        (self.files / "faults" / call).write_text(words)

    def allow(self, free_bytes: int) -> None:
        """Let processes have so many bytes of each device, as MPS does."""
        (self.files / "free").write_text(str(free_bytes))


def compile_cuda(target: Path, *options: str) -> Path:
    """Compile the library."""
    source = Path(__file__).with_name("cuda.c")
    subprocess.run(["gcc", *_C, *options, "-o", str(target), str(source)], check=True)
    return target


def whole_gpus(machine: FakeMachine) -> list[Described]:
    """The GPUs of a machine."""
    product = machine.spec.product
    total = (product.memory_bytes or 0) - product.reserved_bytes
    uuids = [machine.uuid(pci) for pci in machine.state.listed()]
    return [Described(one, one, product.compute_capability, total, product.name) for one in uuids]


def partition(machine: FakeMachine, uuid: str, total_bytes: int, profile: str) -> Described:
    """A MIG device of the machine's first GPU."""
    product = machine.spec.product
    gpu = machine.uuid(machine.pci(0))
    return Described(gpu, uuid, product.compute_capability, total_bytes, f"{product.name} MIG {profile}")
