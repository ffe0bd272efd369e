"""The program ``scenario-use``: says how much of a GPU of a node of fakes is used, as a busy one would."""

from __future__ import annotations

import click

from kubernetes_rules.quantity import parse_quantity
from tools.scenarios.commands.machines import GPU, machine_of, run_program


@click.command()
@click.argument("node")
@GPU
@click.argument("busy", type=click.IntRange(0, 100))
@click.argument("memory")
def use(node: str, gpu: int, busy: int, memory: str) -> None:
    """Let a GPU of a NODE of fakes be BUSY percent of the time, with so much MEMORY used, such as 21Gi.

    On hardware the programs in the containers do so.
    """
    machine_of(node).use(gpu, compute=busy / 100, used_bytes=int(parse_quantity(memory)))
    click.echo(f"GPU {gpu} of {node} is busy for {busy} percent of the time and uses {memory} of its memory")


if __name__ == "__main__":
    run_program(use, "scenario-use")
