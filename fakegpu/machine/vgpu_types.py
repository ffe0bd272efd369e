"""Reads what vGPUs a host can make of its GPUs: the framework of the kernel, and the vGPU types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from driver.errors import ConfigError
from driver.nvml.vgpu import VgpuType
from fakegpu.machine.fields import Fields

CATALOGUES = Path(__file__).parents[1] / "vgpu_types"
"""The catalogues that machine files name, ``<name>.yaml``."""

Framework = Literal["vfio", "mdev"]
"""``vfio``: the vendor-specific framework, a type for each virtual function. ``mdev``: mediated devices."""


@dataclass(frozen=True, slots=True)
class VgpuHost:
    """What a machine with the vGPU manager can make of each of its GPUs.

    vGPUs are made on virtual functions; without SR-IOV, mediated devices are made on the GPUs themselves.
    """

    framework: Framework
    types: tuple[VgpuType, ...]

    def supported(self, *, mig_enabled: bool) -> tuple[VgpuType, ...]:
        """The types that NVML lists: in MIG mode those on GPU instances, otherwise the time-sliced types."""
        return tuple(one for one in self.types if (one.gpu_instance_profile is not None) == mig_enabled)


def read_vgpu_host(fields: Fields) -> VgpuHost:
    """The field ``product.vgpu`` of a machine file."""
    host = VgpuHost(
        framework=fields.choice("framework", ("vfio", "mdev"), default="vfio"),
        types=read_types(fields) if fields.holds("types", list) else _named_types(fields),
    )
    fields.refuse_unknown()
    return host


def _named_types(fields: Fields) -> tuple[VgpuType, ...]:
    name = fields.choice("types", known_catalogues(), default=None)
    if name is None:
        fields.refuse("types", f"must be one of {', '.join(known_catalogues())}")
    return load_types(name) if name else ()


def known_catalogues() -> tuple[str, ...]:
    """The names of the catalogues, sorted."""
    return tuple(sorted(path.stem for path in CATALOGUES.glob("*.yaml")))


@cache
def load_types(name: str) -> tuple[VgpuType, ...]:
    """Read a catalogue in CATALOGUES; raises ConfigError with everything that is wrong in the file."""
    path = CATALOGUES / f"{name}.yaml"
    fields = Fields(yaml.safe_load(path.read_text(encoding="utf-8")))
    types = read_types(fields)
    fields.refuse_unknown()
    if fields.errors:
        raise ConfigError(f"cannot use the catalogue {path}", "; ".join(fields.errors))
    return types


def read_types(fields: Fields) -> tuple[VgpuType, ...]:
    """The vGPU types in the field ``types``, sorted by id; errors are collected in ``fields``."""
    types = sorted(_types(fields.items("types")), key=lambda one: one.id)
    if not types or len({one.id for one in types}) != len(types):
        fields.refuse("types", "needs types, each with its own id")
    return tuple(types)


def _types(items: Iterable[Fields]) -> Iterable[VgpuType]:
    for item in items:
        yield VgpuType(
            id=item.number("id", minimum=1),
            name=item.text("name", r"(NVIDIA|GRID) .+-[0-9]+[QABC](ME)?", "name such as NVIDIA L40S-8Q"),
            class_name=item.name("class", ("Quadro", "NVS", "Compute")),
            memory_bytes=item.number("memory_mib", minimum=1) * 2**20,
            most=item.number("most", minimum=1),
            gpu_instance_profile=(
                item.number("gpu_instance_profile", minimum=0) if "gpu_instance_profile" in item else None
            ),
            frames_per_second=(
                item.number("frames_per_second", minimum=1) if "frames_per_second" in item else None
            ),
        )
        item.refuse_unknown()
