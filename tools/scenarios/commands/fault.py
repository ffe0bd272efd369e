"""The program ``scenario-fault``: makes GPUs of a node of fakes sick and well again, as hardware would be."""

from __future__ import annotations

from typing import get_args

import click

from driver.nvml.health.values import RecoveryAction
from fakegpu.machine.fake_machine import FakeMachine
from tools.scenarios.commands.machines import GPU, machine_of, run_program


@click.group()
@click.argument("node")
@click.pass_context
def fault(context: click.Context, node: str) -> None:
    """Do something to a GPU of a NODE of fakes; a GPU is named by its index in nvidia-smi.

    On hardware nobody can do so: it happens there, and the NVIDIA driver tells of it.
    """
    context.obj = machine_of(node)


@fault.command()
@click.argument("code", type=click.IntRange(min=1))
@GPU
@click.pass_obj
def xid(machine: FakeMachine, code: int, gpu: int) -> None:
    """Let the NVIDIA driver tell of an XID; with 79 the GPU falls off the bus."""
    machine.xid(gpu, code)
    click.echo(f"the NVIDIA driver told of XID {code} on GPU {gpu}")


@fault.command()
@click.argument("action", type=click.Choice(get_args(RecoveryAction)))
@GPU
@click.pass_obj
def recovery(machine: FakeMachine, action: RecoveryAction, gpu: int) -> None:
    """Let the NVIDIA driver say what makes the GPU well again."""
    machine.recovery_action(gpu, action)
    click.echo(f"the NVIDIA driver says of GPU {gpu}: {action}")


@fault.command()
@GPU
@click.pass_obj
def reset(machine: FakeMachine, gpu: int) -> None:
    """Reset a GPU that nobody uses: what was sick is well again, and one that fell off the bus is back."""
    machine.reset(gpu)
    click.echo(f"GPU {gpu} is reset")


@fault.command()
@GPU
@click.pass_obj
def unlicense(machine: FakeMachine, gpu: int) -> None:
    """Take the license of a vGPU away."""
    machine.set_license(gpu, licensed=False)
    click.echo(f"GPU {gpu} has no license")


@fault.command()
@GPU
@click.pass_obj
def license(machine: FakeMachine, gpu: int) -> None:  # noqa: A001 - the command's name
    """Give a vGPU its license."""
    machine.set_license(gpu, licensed=True)
    click.echo(f"GPU {gpu} has a license")


@fault.command("unload-driver")
@click.pass_obj
def unload_driver(machine: FakeMachine) -> None:
    """Unload the NVIDIA driver of the node; modes, partitions and limits go with it."""
    machine.driver_gone()
    click.echo("the NVIDIA driver is unloaded")


@fault.command("load-driver")
@click.argument("version", required=False)
@click.pass_obj
def load_driver(machine: FakeMachine, version: str | None) -> None:
    """Load the NVIDIA driver of the node again, perhaps another VERSION."""
    machine.driver_back(version)
    click.echo(f"the NVIDIA driver {machine.state.driver_version} is loaded")


if __name__ == "__main__":
    run_program(fault, "scenario-fault")
