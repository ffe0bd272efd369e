"""Works out which partitions each GPU of a node gets, where they lie, and the commands that make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from driver.errors import ConfigError
from driver.hardware.gpu import GpuMig
from driver.hardware.pci import PRODUCTS
from driver.kinds.partition.layouts import Placed
from fakegpu.machine.spec import known_machines, load_machine
from gpuctl.importing.mig_parted import Entry, load_mig_parted, products_of, whole_instance
from gpuctl.plan.partitions import Layout, fit, placed_data, profiles_text
from gpuctl.plan.planned import plan_node
from gpuctl.repartition.node_gpus import NodeGpu

_KNOWN_PRODUCTS = frozenset(name for names in PRODUCTS.values() for name in names)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one GPU has to become: MIG ``enabled`` or not, and the partitions in their places.

    ``without_reset``: the model switches its MIG mode without a reset.
    """

    gpu: NodeGpu
    enabled: bool
    placed: tuple[Placed, ...]
    without_reset: bool

    @property
    def profiles(self) -> tuple[str, ...]:
        """The names of the profiles, one for each partition."""
        return tuple(profile.name for profile, _ in self.placed)

    def reached(self, now: NodeGpu | None) -> bool:
        """Whether the GPU is published as wanted; ``now`` is None if nothing of it is published."""
        if self.placed:
            return (
                now is not None and now.mode == "static" and Counter(now.partitions) == Counter(self.profiles)
            )
        # With MIG on and no partition there is nothing that could be offered.
        return now is None if self.enabled else now is not None and now.mode == "whole"

    def commands(self) -> tuple[str, ...]:
        """The commands to run on the node, as root, when nobody uses the GPU."""
        on = f"-i {self.gpu.pci}"
        lines = []
        if self.gpu.mode == "static":
            # Compute instances first: NVML destroys no GPU instance that still has one.
            lines += [f"nvidia-smi mig {on} -dci", f"nvidia-smi mig {on} -dgi"]
        if self.enabled == (self.gpu.mode == "whole"):
            lines.append(f"nvidia-smi {on} -mig {int(self.enabled)}")
            # Models before Hopper keep the new mode pending until they are reset.
            if not self.without_reset:
                lines.append(f"nvidia-smi {on} --gpu-reset")
        if self.placed:
            # With its place (ID:START) each partition lies as planned; nvidia-smi alone may leave no room for
            # the last ones.
            places = ",".join(f"{profile.id}:{place.start}" for profile, place in self.placed)
            lines.append(f"nvidia-smi mig {on} -cgi {places} -C")
        return tuple(lines)

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        return {
            "gpu": str(self.gpu.pci),
            "now": list(self.gpu.partitions) or self.gpu.mode,
            "migEnabled": self.enabled,
            "partitions": placed_data(self.placed),
            "commands": list(self.commands()),
        }


@dataclass(frozen=True, slots=True)
class MigConfig:
    """One configuration of a file of mig-parted."""

    file: Path
    name: str
    entries: tuple[Entry, ...]
    in_config_map: bool = False

    @classmethod
    def read(cls, text: str) -> MigConfig:
        """Read ``FILE:NAME``; raises ConfigError."""
        file, colon, name = text.rpartition(":")
        if not colon or not file or not name:
            raise ConfigError(
                f"{text!r} is not FILE:NAME", "name a file of mig-parted and a configuration in it"
            )
        found = load_mig_parted(Path(file))
        if name not in found.configs:
            raise ConfigError(f"{file} has no configuration {name}", f"it has {', '.join(found.configs)}")
        return cls(Path(file), name, found.configs[name], found.in_config_map)

    def layout_for(self, gpu: NodeGpu) -> Layout | None:
        """The layout of a GPU by this configuration, None if no entry applies to it.

        Raises ConfigError if that cannot be known, or if the layout has no equivalent.
        """
        # mig-parted applies the entries one after the other, so the last one that applies wins.
        entry = next((entry for entry in reversed(self.entries) if self._applies(entry, gpu)), None)
        if entry is None:
            return None
        if not entry.enabled:
            return "all-disabled"
        names = []
        for name, count in entry.profiles:
            profile = whole_instance(name)
            if profile is None:
                raise ConfigError(
                    f"{self.name} wants {name}, which is only a part of a GPU instance",
                    "apply it with nvidia-mig-parted",
                )
            names += [profile] * count
        return tuple(names) or "all-enabled"

    def _applies(self, entry: Entry, gpu: NodeGpu) -> bool:
        if entry.devices is not None and gpu.index is None:
            raise ConfigError(f"the index of {gpu.pci} is not published", "name a layout with --layout")
        if entry.devices is not None and gpu.index not in entry.devices:
            return False
        if not entry.device_ids:
            return True
        names = {name for device_id in entry.device_ids for name in products_of(device_id)}
        if gpu.product not in names and gpu.product not in _KNOWN_PRODUCTS:
            model = gpu.product or "a GPU without a name"
            raise ConfigError(
                f"cannot tell whether the device filter of {self.name} matches {model}",
                "name a layout with --layout",
            )
        return gpu.product in names


def wanted_of(gpus: Iterable[NodeGpu], layout: Layout | MigConfig, machine: str | None) -> tuple[Wanted, ...]:
    """What each GPU has to become; GPUs that the layout does not apply to are left out.

    ``machine`` describes GPUs whose model no shipped machine has. Raises ConfigError for an unknown model,
    and for a layout that does not fit.
    """
    found = []
    for gpu in gpus:
        chosen = layout.layout_for(gpu) if isinstance(layout, MigConfig) else layout
        if chosen is None:
            continue
        mig = _mig_of_model(gpu.product, machine)
        fitted = fit(chosen, mig)
        if fitted.problem:
            raise ConfigError(
                f"the layout does not fit on {gpu.pci}: {fitted.problem}", "see `gpuctl mig plan`"
            )
        found.append(Wanted(gpu, chosen != "all-disabled", fitted.placed, mig.without_reset))
    return tuple(found)


def _mig_of_model(product: str | None, machine: str | None) -> GpuMig:
    """The profiles and places of a model's partitions; raises ConfigError if they are not known.

    They are those of the shipped machine with such GPUs, or of ``machine``.
    """
    chosen = machine or _machine_with(product)
    if chosen is None:
        raise ConfigError(
            f"the MIG profiles of {product or 'a GPU without a name'} are not known",
            "describe its machine with --machine, or apply the layout with nvidia-mig-parted",
        )
    # NVML would know, but only on the node. A pretended machine with such GPUs answers like it.
    for gpu in plan_node(chosen, "node", None).inventory.gpus:
        if gpu.mig is not None and (product is None or gpu.product_name == product):
            return gpu.mig
    raise ConfigError(f"the machine {chosen} has no {product or 'GPU'} with MIG", "name another --machine")


@cache
def _machine_with(product: str | None) -> str | None:
    return next((name for name in known_machines() if load_machine(name).product.name == product), None)


def commands_text(wanted: Sequence[Wanted], layout: Layout | MigConfig) -> str:
    """The commands for all GPUs, with the partitions beside them, and mig-parted's own where it can do it."""
    lines = []
    for one in wanted:
        places = ", ".join(f"{profile.name} at {place.start}" for profile, place in one.placed)
        lines.append(f"# {one.gpu.pci}: {places or ('no partition' if one.enabled else 'MIG off')}")
        lines += one.commands()
    if isinstance(layout, MigConfig) and not layout.in_config_map:
        lines.append("# or, for all GPUs of the node at once:")
        lines.append(f"nvidia-mig-parted apply -f {layout.file} -c {layout.name}")
    return "\n".join(lines)


def still_missing(wanted: Sequence[Wanted], now: Mapping[Any, NodeGpu]) -> tuple[str, ...]:
    """For each GPU that is not as wanted yet, what is published of it now."""
    found = []
    for one in wanted:
        gpu = now.get(one.gpu.pci)
        if not one.reached(gpu):
            there = "nothing" if gpu is None else profiles_text(gpu.partitions) or gpu.mode
            wish = profiles_text(one.profiles) or ("nothing" if one.enabled else "the whole GPU")
            found.append(f"{one.gpu.pci}: published is {there}, wanted {wish}")
    return tuple(found)
