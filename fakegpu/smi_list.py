"""What a fake nvidia-smi lists in containers, where it cannot reach the machine's state: shell lines."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu.spec import MachineSpec
    from fakegpu.state import MachineState

SMI = "nvidia-smi"
_BEGIN, _END = 'case "$*" in ""|-L)\n', "exit 0;; esac\n"


def list_lines(root: Path, spec: MachineSpec, state: MachineState) -> str:
    """Shell lines that print one line for each GPU whose node exists, as ``nvidia-smi -L`` does."""
    lines = []
    for index, pci in enumerate(state.listed()):
        gpu = state.gpus[pci]
        node = f"dev/nvidia{gpu.minor}"
        seen = f"[ -e /{node} ] || [ -e {shlex.quote(str((root / node).absolute()))} ]"
        text = f"GPU {index}: {spec.product.name} (UUID: {spec.board_uuid(pci, gpu.board)})"
        lines.append(f"if {seen}; then echo {shlex.quote(text)}; fi\n")
    return f"{_BEGIN}{''.join(lines)}{_END}"


def list_anew(root: Path, spec: MachineSpec, state: MachineState) -> None:
    """Have the program of a driver root list the GPUs as they are now: minors change while vfio has a GPU.

    Containers that run already keep the program that they were given. A root whose programs are links
    shares them with other machines: they stay as they are.
    """
    program = root / "usr" / "bin" / SMI
    if not program.resolve().is_relative_to(root.resolve()):
        return
    try:
        before, found, rest = program.read_text().partition(_BEGIN)
    except FileNotFoundError:
        return
    if not found:
        return
    after = rest.partition(_END)[2]
    made = program.with_name(f".{SMI}-{os.getpid()}")
    made.write_text(before + list_lines(root, spec, state) + after)
    made.chmod(0o755)
    made.rename(program)
