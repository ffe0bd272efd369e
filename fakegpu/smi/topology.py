"""``nvidia-smi topo -m`` of a fake machine: the matrix itself, and shell lines that print it in containers.

The legend below the real matrix is left out. It is not known which NVLinks the real matrix shows for a GPU in
MIG mode; here it shows those of the board.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from fakegpu.machine.spec import MachineSpec, Slot, TopologyLevel, topology_level

TOPOLOGY = "topo -m"
_ENDING = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_UNKNOWN = "N/A"
_WORDS: dict[TopologyLevel, str] = {
    "internal": " X ", "single": "PIX", "multiple": "PXB", "hostbridge": "PHB", "node": "NODE",
    "system": "SYS",
}  # fmt: skip


def matrix_lines(slots: Sequence[Slot]) -> Iterable[str]:
    """The matrix of these GPUs, which are numbered from 0 in their order."""
    names = [f"GPU{index}" for index in range(len(slots))]
    yield "\t".join(["", *names, *_ENDING])
    for name, one in zip(names, slots, strict=True):
        yield "\t".join([name, *(_path_word(one, other) for other in slots), _affinity_words(one)])


def _path_word(one: Slot, other: Slot) -> str:
    """How one GPU reaches another: ``NV4`` over four NVLinks, otherwise the PCIe level, such as ``SYS``."""
    straight = sum(end.remote == other.pci for end in one.links)
    # Every link into an NVSwitch reaches every other GPU, as far as that has as many links.
    through = min(sum(end.kind == "switch" for end in slot.links) for slot in (one, other))
    links = straight or through
    return f"NV{links}" if links and one is not other else _WORDS[topology_level(one, other)]


def _affinity_words(slot: Slot) -> str:
    """The last columns of a GPU's row: its CPUs, their NUMA node, and the NUMA node of its own memory."""
    node = _UNKNOWN if slot.numa_node is None else str(slot.numa_node)
    return f"{slot.cpus or _UNKNOWN}\t{node}\t\t{_UNKNOWN}"


def shell_lines(spec: MachineSpec, seen: Sequence[tuple[Slot, str]]) -> str:
    """Shell lines that print the matrix of the GPUs that a container sees.

    ``seen`` are slots, each with the shell test for its device node.
    """
    places = [spec.slots.index(slot) for slot, _ in seen]
    tests = "".join(
        f'if {test}; then s="$s {place}"; fi\n' for place, (_, test) in zip(places, seen, strict=True)
    )
    cells = "".join(
        f"{place}-{other}) printf '\\t%s' {shlex.quote(_path_word(spec.slots[place], spec.slots[other]))};;\n"
        for place in places
        for other in places
    )
    ends = "".join(
        f"{place}) printf '\\t%s\\n' {shlex.quote(_affinity_words(spec.slots[place]))};;\n"
        for place in places
    )
    heads = "".join(f"\\t{word}" for word in _ENDING)
    # $s has the numbers of the GPUs that are seen; the loops over it print their rows and cells.
    return (
        f"s=\n{tests}n=0; for a in $s; do printf '\\tGPU%d' $n; n=$((n+1)); done; printf '{heads}\\n'\n"
        "n=0; for a in $s; do printf 'GPU%d' $n; n=$((n+1))\n"
        f"for b in $s; do case $a-$b in\n{cells}esac; done\ncase $a in\n{ends}esac; done\n"
    )
