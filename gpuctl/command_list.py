"""All commands of gpuctl, each with its sentence in the help and the import that brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuctl.cli.lazy_group import LazyCommand

if TYPE_CHECKING:
    import click


def _completion() -> click.Command:
    from gpuctl.completion.command import completion

    return completion


def _demo() -> click.Command:
    from gpuctl.demo.command import demo

    return demo


def _describe() -> click.Command:
    from gpuctl.describe.command import describe

    return describe


def _doctor() -> click.Command:
    from gpuctl.doctor.command import doctor

    return doctor


def _explain() -> click.Command:
    from gpuctl.explain.command import explain

    return explain


def _gather() -> click.Command:
    from gpuctl.gather.command import gather

    return gather


def _heal() -> click.Command:
    from gpuctl.heal.command import heal

    return heal


def _import() -> click.Command:
    from gpuctl.importing.command import import_

    return import_


def _machines() -> click.Command:
    from gpuctl.machines.command import machines

    return machines


def _mig() -> click.Command:
    from gpuctl.mig.command import mig

    return mig


def _plan() -> click.Command:
    from gpuctl.node.plan_command import plan

    return plan


def _repartition() -> click.Command:
    from gpuctl.repartition.command import repartition

    return repartition


def _simulate() -> click.Command:
    from gpuctl.simulate.command import simulate

    return simulate


def _status() -> click.Command:
    from gpuctl.status.command import status

    return status


def _top() -> click.Command:
    from gpuctl.top.command import top

    return top


def _topology() -> click.Command:
    from gpuctl.node.topology_command import topology

    return topology


def _web() -> click.Command:
    from gpuctl.web.command import web

    return web


COMMANDS = {
    "completion": LazyCommand("Print the completion script of a shell.", _completion),
    "demo": LazyCommand("Play how pods get GPUs, without a GPU and without a cluster.", _demo),
    "describe": LazyCommand("Tell all about a node, a GPU or a claim.", _describe),
    "doctor": LazyCommand("Say what is wrong with the cluster or a node, and what to do.", _doctor),
    "explain": LazyCommand("Say why pods or claims wait, and what would help.", _explain),
    "gather": LazyCommand("Write a bug report with secrets left out.", _gather),
    "heal": LazyCommand(
        "Say what is wrong with a GPU and what is in the way of a reset, and reset it.", _heal
    ),
    "import": LazyCommand("Turn the configuration of other tools into one of this driver.", _import),
    "machines": LazyCommand("List the machines that plan, simulate and demo can pretend.", _machines),
    "mig": LazyCommand("See what MIG can make of GPUs.", _mig),
    "plan": LazyCommand("Show exactly what a node would publish.", _plan),
    "repartition": LazyCommand("Change the static MIG partitions of a node.", _repartition),
    "simulate": LazyCommand("Try whether a workload fits on so many nodes.", _simulate),
    "status": LazyCommand("Show what is allocated, free or unavailable, by node and tier.", _status),
    "top": LazyCommand("Show who uses how much of what he holds.", _top),
    "topology": LazyCommand("Draw how the GPUs of a node reach each other.", _topology),
    "web": LazyCommand("Serve a page that shows the cluster's GPUs, on this machine.", _web),
}
