"""Shell lines for a fake nvidia-smi in containers, where it cannot reach the machine's state.

They print the GPUs and partitions whose device nodes the container has.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from driver.nvml.mig import partition_name
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.capabilities import CAPABILITY_NODES, access_minor
from fakegpu.machine.mig_state import mig_devices
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import GpuState, MachineState
from fakegpu.smi.topology import TOPOLOGY, shell_lines

SMI = "nvidia-smi"
# The first and the last of these lines, by which they are found again in the program.
_BEGIN, _END = 'case "$*" in ""|-L)\n', "exit 0;; esac\n"


def list_lines(root: Path, spec: MachineSpec, state: MachineState) -> str:
    """Shell lines for ``-L`` and ``topo -m``, about the GPUs whose device nodes exist where they run.

    GPUs are numbered from 0, as NVML numbers those that it sees in a container. Below a GPU the MIG devices
    whose capability nodes exist are listed.
    """
    seen = [(spec.slot(pci), _exists(root, f"dev/nvidia{state.gpus[pci].minor}")) for pci in state.listed()]
    lists = "".join(
        f"if {test}; then\n{_gpu_lines(root, spec, state.gpus[slot.pci], slot.pci)}n=$((n+1)); fi\n"
        for slot, test in seen
    )
    topology = f"exit 0;;\n{shlex.quote(TOPOLOGY)})\n{shell_lines(spec, seen)}"
    return f"{_BEGIN}n=0\n{lists}{topology}{_END}"


def _exists(root: Path, node: str) -> str:
    """The shell test for a device node: in the container's /dev, or below the driver root on the host."""
    return f"[ -e /{node} ] || [ -e {shlex.quote(str((root / node).absolute()))} ]"


def _gpu_lines(root: Path, spec: MachineSpec, gpu: GpuState, pci: PciAddress) -> str:
    uuid = spec.board_uuid(pci, gpu.board)
    form = shlex.quote(f"GPU %d: {spec.product.name} (UUID: {uuid})\\n")
    return f"printf {form} $n\nm=0\n{''.join(_partition_lines(root, spec, gpu, uuid))}"


def _partition_lines(root: Path, spec: MachineSpec, gpu: GpuState, uuid: str) -> Iterable[str]:
    catalogue = spec.product.mig
    if catalogue is None:
        return
    profiles = {one.id: catalogue.profile(one.profile_id) for one in gpu.mig.instances}
    for mig in mig_devices(catalogue, gpu.mig, uuid):
        ids = (mig.gpu_instance_id, mig.compute_instance_id)
        minors = (access_minor(gpu.minor, ids[0]), access_minor(gpu.minor, *ids))
        tests = [_exists(root, f"{CAPABILITY_NODES}/nvidia-cap{minor}") for minor in minors]
        name = partition_name(profiles[mig.gpu_instance_id], mig.compute_instance_slices)
        line = shlex.quote(f"  MIG {name:<12}Device %2d: (UUID: {mig.uuid})\\n")
        yield f"if {{ {tests[0]}; }} && {{ {tests[1]}; }}; then printf {line} $m; m=$((m+1)); fi\n"


def rewrite_list(root: Path, spec: MachineSpec, state: MachineState) -> None:
    """Make the nvidia-smi of a driver root list the GPUs and partitions as they are now.

    Containers that already run keep the program that was mounted for them. If the root's programs are links,
    it shares them with other machines, and they stay as they are.
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
    # By rename: a shell that runs the program reads it bit by bit, and keeps the old file open.
    made = program.with_name(f".{SMI}-{os.getpid()}")
    made.write_text(before + list_lines(root, spec, state) + after)
    made.chmod(0o755)
    made.rename(program)
