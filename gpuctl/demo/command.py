"""The command ``gpuctl demo``: prints the story or its facts, and ends everything that it started."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from driver.errors import DriverError
from gpuctl.cli.failures import error_text
from gpuctl.cli.output import document, emit, output_option
from gpuctl.demo.ending import signals_end_it_once
from gpuctl.plan.machine_options import machine_option

if TYPE_CHECKING:
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.lent_gpus import LentGpus
    from gpuctl.demo.story import Narrator


@click.command(context_settings={"show_default": True})
@machine_option(default="hgx-h100")
@click.option(
    "--cluster",
    "kind",
    type=click.Choice(("embedded", "real")),
    default="embedded",
    help="Kubernetes inside this command (embedded), or real binaries on this machine (needs root).",
)
@click.option(
    "--nvml",
    metavar="NVML",
    default="",
    show_default=False,
    help="real, for the idle GPUs of this machine, which are as before afterwards; or fake:MACHINE.",
)
@click.option("--rbac", is_flag=True, help="Let users and the driver do only what roles allow them.")
@click.option(
    "--keep",
    is_flag=True,
    help="Leave the cluster running until Ctrl-C, for kubectl.",
)
@output_option()
def demo(
    machine: str, kind: Literal["embedded", "real"], nvml: str, output: str, *, rbac: bool, keep: bool
) -> None:
    """Show how pods get GPUs, on a temporary cluster with a simulated machine.

    Needs no GPU; --keep needs openssl. Other users of this machine get nothing from it but, with --keep, the
    driver's metrics: the cluster answers only who shows the token of its kubeconfig, which only you can read.
    With --nvml real it shows the same on the idle GPUs of this machine; it refuses where `gpuctl verify
    --may-change` does. Exit codes: 0 when every step went as expected, 1 when one did not, 2 for a wrong
    command line.
    """
    is_real = nvml == "real"
    if nvml.startswith("fake:"):
        machine = nvml.removeprefix("fake:").partition("@")[0]
    elif nvml and not is_real:
        raise click.UsageError(f"--nvml {nvml!r} is neither real nor fake:MACHINE")
    if is_real and kind == "real":
        raise click.UsageError("the GPUs of this machine are for the embedded cluster: leave out --cluster")
    if is_real and rbac:
        raise click.UsageError("--rbac is for fake GPUs: leave out --nvml real")
    _check_machine(machine)
    if output == "table":  # at once: the imports below take a second
        node = "the idle GPUs of this machine" if is_real else f"the machine {machine}; no GPU is needed"
        click.echo(f"starting a cluster with one node, {node}")
        if not is_real and has_gpu():
            click.echo(
                "this machine has an NVIDIA GPU: `gpuctl demo --nvml real` shows the same on it, and "
                "`gpuctl verify` checks it"
            )
    from rich.console import Console

    from driver.process.log import configure
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.story import Narrator

    configure("warning", sys.stderr)
    narrator = Narrator(Console(quiet=output != "table"))
    with signals_end_it_once() as ending, _lent(narrator.say, ending, is_real=is_real) as lent:
        nvml_of = "real" if is_real else machine
        cluster = DemoCluster(kind, nvml_of, lent, rbac=rbac, https=keep, metrics=keep)
        with _closed(cluster, ending), _logs_of_failure(cluster):
            _told(cluster, narrator, output, keep=keep)


def has_gpu(dev: Path = Path("/dev"), sysfs: Path = Path("/sys")) -> bool:
    """Whether this machine has an NVIDIA GPU, whatever its kernel driver."""
    from driver.hardware.pci_view import pci_view

    return (dev / "nvidiactl").exists() or bool(pci_view(sysfs).physical)


def _check_machine(machine: str) -> None:
    from fakegpu.machine.spec import load_machine

    try:
        load_machine(machine)
    except DriverError as error:
        raise click.UsageError(error_text(error)) from error


@contextmanager
def _lent(
    say: Callable[[str], None], ending: Callable[[], None], *, is_real: bool
) -> Iterator[LentGpus | None]:
    """The idle GPUs of this machine, which are brought back after the block; None unless they are wanted."""
    if not is_real:
        yield None
        return
    from gpuctl.demo.lent_gpus import lent_gpus
    from gpuctl.doctor.inside.places import read_places

    with lent_gpus(read_places({"nvml": "real"}, ()), say) as lent:
        try:
            yield lent
        finally:
            # A second Ctrl-C must not leave the GPUs as they are now.
            ending()


def _told(cluster: DemoCluster, narrator: Narrator, output: str, *, keep: bool) -> None:
    """Tell the story, print its facts, and keep the cluster if that is wanted."""
    from gpuctl.demo.story import tell

    facts = tell(cluster, narrator)
    if output != "table":
        emit(output, document("DemoStory", facts), lambda: "")
    if keep:
        _wait_for_the_end(cluster)


def _wait_for_the_end(cluster: DemoCluster) -> None:
    """Say how to reach the cluster, and wait for Ctrl-C; on stderr, so that stdout stays JSON."""
    cluster.offer_in_limits()
    cluster.show_metrics()
    # The environment that gpuctl lies in need not be active in the other terminal.
    config, programs = shlex.quote(str(cluster.kubeconfig)), shlex.quote(str(Path(sys.executable).parent))
    export = f"export KUBECONFIG={config} PATH={programs}:$PATH"
    try:  # around the message too: who reads it may press Ctrl-C before the wait has begun
        click.echo(
            f"the cluster keeps running until Ctrl-C; use it in another terminal after:\n{export}",
            err=True,
        )
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("stopping the cluster", err=True)


@contextmanager
def _logs_of_failure(cluster: DemoCluster) -> Iterator[None]:
    """Print the ends of the logs on stderr when the story fails: they are removed with the cluster."""
    try:
        yield
    except Exception:
        for name, tail in cluster.logs().items():
            click.echo(f"--- the end of the log of {name}\n{tail}", err=True)
        raise


@contextmanager
def _closed(cluster: DemoCluster, ending: Callable[[], None]) -> Iterator[None]:
    """Close the cluster, however the story ends."""
    try:
        yield
    finally:
        # A second Ctrl-C must not keep the processes of the cluster alive.
        ending()
        cluster.close()
