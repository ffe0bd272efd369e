"""The command ``gpuctl demo``: prints the story or its facts, and ends everything that it started."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gpuctl.cli.output import document, emit, output_option
from gpuctl.demo.ending import signals_end_it_once
from gpuctl.plan.machine_options import machine_option

if TYPE_CHECKING:
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.lent_gpus import LentGpus


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
    type=click.Choice(("real",)),
    help="The idle GPUs of this machine, which are as before afterwards, in place of a fake machine.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Leave the cluster running until Ctrl-C, for kubectl.",
)
@output_option()
def demo(
    machine: str, kind: Literal["embedded", "real"], nvml: str | None, output: str, *, keep: bool
) -> None:
    """Show how pods get GPUs, on a temporary cluster with a simulated machine.

    Needs no GPU; --keep needs openssl. Other users of this machine get nothing from it but, with --keep, the
    driver's metrics: the cluster answers only who shows the token of its kubeconfig, which only you can read.
    With --nvml real it shows the same on the idle GPUs of this machine; it refuses where `gpuctl verify
    --may-change` does. Exit codes: 0 when every step went as expected, 1 when one did not, 2 for a wrong
    command line, 130 when Ctrl-C stopped it.
    """
    if nvml and kind == "real":
        raise click.UsageError("the GPUs of this machine are for the embedded cluster: leave out --cluster")
    try:
        if output == "table":  # at once: the imports of the cluster take a second
            node = "the idle GPUs of this machine" if nvml else f"the machine {machine}; no GPU is needed"
            click.echo(f"starting a cluster with one node, {node}")
            if not nvml and has_gpu():
                click.echo(
                    "this machine has an NVIDIA GPU: `gpuctl demo --nvml real` shows the same on it, and "
                    "`gpuctl verify` checks it"
                )
        _play(machine, kind, output, is_real=nvml is not None, keep=keep)
    except KeyboardInterrupt:
        click.echo("stopped, and nothing of it is left", err=True)
        raise


def has_gpu(dev: Path = Path("/dev"), sysfs: Path = Path("/sys")) -> bool:
    """Whether this machine has an NVIDIA GPU, whatever its kernel driver."""
    from driver.hardware.pci_view import pci_view

    return (dev / "nvidiactl").exists() or bool(pci_view(sysfs).physical)


def _play(machine: str, kind: Literal["embedded", "real"], output: str, *, is_real: bool, keep: bool) -> None:
    """Tell the story, print its facts, and keep the cluster if that is wanted."""
    from rich.console import Console

    from driver.process.log import configure
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.story import Narrator, tell

    configure("warning", sys.stderr)
    narrator = Narrator(Console(quiet=output != "table"))
    with signals_end_it_once() as ending, _lent(narrator.say, ending, is_real=is_real) as lent:
        cluster = DemoCluster(kind, "real" if is_real else machine, lent, keep=keep)
        try:
            story = tell(cluster, narrator)
            if output != "table":
                emit(output, document("DemoStory", story), lambda: "")
            if keep:
                _wait_for_the_end(cluster)
            elif output == "table":
                # Where the environment that gpuctl lies in is not active, its path is typed.
                gpuctl = (
                    "gpuctl"
                    if shutil.which("gpuctl")
                    else _from_here(Path(sys.executable).with_name("gpuctl"))
                )
                click.echo(
                    _now_try(
                        {
                            f"{gpuctl} demo --keep": "such a cluster, left running for kubectl",
                            f"{gpuctl} demo --machine a30-quad": "the story on other GPUs",
                            f"{gpuctl} plan --machine l40s-octo": "what a node with these GPUs would offer",
                        }
                    )
                )
        except Exception:
            # The logs are removed with the cluster.
            for name, tail in cluster.logs().items():
                click.echo(f"--- the end of the log of {name}\n{tail}", err=True)
            raise
        finally:
            # A second Ctrl-C must not keep the processes of the cluster alive.
            ending()
            cluster.close()


def _wait_for_the_end(cluster: DemoCluster) -> None:
    """Say how to reach the cluster, and wait for Ctrl-C; on stderr, so that stdout stays JSON."""
    from envtest.client.shipped import PACKAGE_ROOT

    cluster.open_to_users()
    # The environment that gpuctl lies in need not be active in the other terminal.
    config, programs = shlex.quote(str(cluster.kubeconfig)), shlex.quote(str(Path(sys.executable).parent))
    shares = _from_here(PACKAGE_ROOT / "deploy/tutorial/shares.yaml")
    try:  # around the message too: who reads it may press Ctrl-C before the wait has begun
        click.echo(
            "the cluster keeps running until Ctrl-C; use it in another terminal after:\n"
            f"export KUBECONFIG={config} PATH={programs}:$PATH\n"
            + _now_try(
                {
                    f"kubectl apply -f {shares}": "three pods that share a GPU",
                    "gpuctl explain pod lab-0": "where it runs, or why it waits",
                    "gpuctl top": "how much the pods use; gpuctl web shows everything on a page",
                }
            ),
            err=True,
        )
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("stopping the cluster", err=True)


def _now_try(meanings: Mapping[str, str]) -> str:
    """Commands with what they do."""
    width = max(map(len, meanings))
    lines = [f"  {command:<{width}}   {meaning}" for command, meaning in meanings.items()]
    return "\n".join(["now try:", *lines])


def _from_here(path: Path) -> str:
    """The path to type in this folder."""
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))


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
