"""Lays the compiled libcuda (fakegpu.cuda.compiled) out for a machine, with files by which it fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fakegpu.cuda.compiled import SONAME, Described, text_of
from tests.gpus import FakeMachine

WITHOUT_V2 = "-DWITHOUT_UUID_V2"
"""Makes a library as old as R465: no UUIDs of MIG devices, no attribute about MPS."""


@dataclass(frozen=True, slots=True)
class CudaDouble:
    """A library that was laid into a folder of its own, and the folder of its files."""

    library: Path

    @classmethod
    def lay(cls, folder: Path, devices: Iterable[Described], compiled: Path) -> CudaDouble:
        """Lay a compiled library for these devices."""
        double = cls(folder / SONAME)
        (double.files / "faults").mkdir(parents=True)
        shutil.copyfile(compiled, double.library)
        (double.files / "machine").write_text(text_of("13.4", devices))
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
