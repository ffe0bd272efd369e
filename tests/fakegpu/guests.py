"""Which of the shipped machines are virtual machines with vGPUs, for tests that expect less of those."""

from tests.gpus import known_machines, load_machine

VGPU_GUESTS = frozenset(
    machine for machine in known_machines() if load_machine(machine).product.virtualization == "vgpu"
)
"""They have neither MIG nor compute modes."""

UNLICENSED = frozenset(machine for machine in known_machines() if not load_machine(machine).product.licensed)
"""Their devices are tainted, so that no pod gets one."""
