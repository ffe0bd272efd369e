"""The command ``gpuctl demo``: chooses the cluster, prints the story or its facts, and ends everything."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
from rich.console import Console

from driver.errors import DriverError
from driver.nvml.fake_spec import known_machines, load_machine
from gpuctl.demo_story import DemoCluster, Narrator, StoryFacts, tell

_CLUSTERS = ("embedded", "real")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(context_settings={"show_default": True})
@click.option("--machine", default="dgx-a100", help="The machine to pretend: a name, or a machine file.")
@click.option(
    "--cluster",
    "kind",
    type=click.Choice(_CLUSTERS),
    default="embedded",
    help="Kubernetes within this command, or real binaries on this machine (needs root).",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("text", "json")),
    default="text",
    help="What to print: the story, or its facts for scripts.",
)
def demo(machine: str, kind: str, output: str) -> None:
    """Play how pods get GPUs, on a cluster and a machine that are made for it and gone afterwards.

    Needs no GPU. Exit codes: 0 when all came out as it has to, 1 when not, 2 for a wrong command line.
    """
    cluster = _cluster(machine, kind)
    console = Console(quiet=output == "json")
    with _signals_end_it_once() as ending:
        facts = _play(cluster, Narrator(console), ending)
    if output == "json":
        click.echo(json.dumps(asdict(facts), indent=2))


def _cluster(machine: str, kind: str) -> DemoCluster:
    try:
        load_machine(machine)
    except DriverError as error:
        raise click.UsageError(str(error)) from error
    if kind == "embedded":
        from gpuctl.demo_embedded import EmbeddedDemo

        return EmbeddedDemo(machine)
    if machine not in known_machines():
        raise click.UsageError(f"on the real cluster --machine is one of {', '.join(known_machines())}")
    from gpuctl.demo_real import RealDemo

    return RealDemo(machine)


@contextmanager
def _signals_end_it_once() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP act as Ctrl-C does; after the call of what is given, none of them does anything:
    a second Ctrl-C must not keep the processes alive. What is ignored, as below nohup, stays so."""
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}

    def ignore() -> None:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)

    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _play(cluster: DemoCluster, narrator: Narrator, ending: Callable[[], None]) -> StoryFacts:
    """The story, with the ends of the logs on stderr when it fails; nothing is left in any case."""
    try:
        return tell(cluster, narrator)
    except Exception:
        for name, tail in cluster.logs().items():
            click.echo(f"--- the end of the log of {name}\n{tail}", err=True)
        raise
    finally:
        ending()
        cluster.close()
