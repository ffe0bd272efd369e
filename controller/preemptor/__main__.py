"""The command of the preemptor, a process of its own that an administrator switches on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driver.process import command_line
from driver.process.log import Level, configure

if TYPE_CHECKING:
    from controller.preemptor.steps_aside import Setting
    from driver.process.metrics import Metrics
    from driver.process.service import Service

NAME = "gpu-dra-preemptor"


@dataclass(frozen=True, slots=True)
class Options:
    """The flags, which ``--help`` explains."""

    namespace: str
    identity: str
    kubeconfig: Path | None
    dry_run: bool
    evictions_per_minute: int
    exempt_namespace: tuple[str, ...]
    exempt_priority_class: tuple[str, ...]
    nominate: bool
    scheduler_preempts: Setting
    metrics_addr: str
    health_addr: str


def start(service: Service, options: Options) -> None:
    """Start all parts below ``service``; raises ConfigError for a flag that cannot be used."""
    # Imported here, so that --help and a usage error need none of it.
    from controller.preemptor.evict import Allowance, Evictor
    from controller.preemptor.pending import Exempt
    from controller.preemptor.preemptor import Behaviour, Preemptor
    from controller.preemptor.steps_aside import AGAIN_SECONDS, SchedulerPreempts
    from controller.preemptor.watch import Watch
    from driver.kube.client import KubeClient
    from driver.kube.events import EventRecorder
    from driver.kube.lease import Lease
    from driver.process.metrics import Metrics

    metrics, stop = Metrics("preemptor"), service.stop_event
    client = KubeClient.connect(options.kubeconfig, user_agent=NAME, on_request=metrics.request_ended)
    service.on_stop("client", client.close)
    recorder = EventRecorder(client, NAME, options.identity)
    lease = Lease(
        *(client, options.namespace, NAME, options.identity, stop),
        changed=lambda: preemptor.wake(),  # noqa: PLW0108 - preemptor is made below
    )
    scheduler = SchedulerPreempts(client, options.scheduler_preempts)
    exempt = Exempt(frozenset(options.exempt_namespace), frozenset(options.exempt_priority_class))
    preemptor = Preemptor(
        client,
        lambda changed: Watch(client, stop, changed, metrics.reflector_restarted),
        lease,
        scheduler,
        Evictor(client, lease.is_held, Allowance(options.evictions_per_minute)),
        recorder,
        metrics,
        Behaviour(exempt, options.dry_run, options.nominate),
        stop,
        lambda: service.pulse.work("preemptor"),
    )

    def ask() -> None:
        scheduler.ask()
        preemptor.wake()

    metrics.show_number("gpu_dra_preemptor_leads", lambda: float(lease.is_held()))
    metrics.show_number("gpu_dra_preemptor_waiting_pods", lambda: float(preemptor.waiting_count))
    _serve_http(service, options, metrics, preemptor.watch.why_not)
    service.catch_signals()
    service.spawn("events", recorder.run, recorder.stop)
    service.spawn("lease", lease.run)
    service.repeat("feature-gates", AGAIN_SECONDS, ask)
    preemptor.watch.start(service)
    service.spawn("preemptor", preemptor.run, preemptor.wake)


def _serve_http(service: Service, options: Options, metrics: Metrics, why_not: Callable[[], str]) -> None:
    from driver.process import metrics as numbers
    from driver.process import probes

    numbers.serve(service, options.metrics_addr, metrics)
    # A replica that waits for the Lease is ready: it would take over at once.
    probes.serve(service, options.health_addr, probes.Probes(lambda: "", service.pulse.hung, why_not))


@command_line.command(NAME)
@command_line.namespace
@command_line.identity
@command_line.kubeconfig
@click.option("--dry-run", is_flag=True, show_envvar=True, help="Evict nobody, and only write events.")
@click.option(
    "--evictions-per-minute",
    type=click.IntRange(min=1),
    default=30,
    show_envvar=True,
    help="How many pods may be evicted within a minute, in the whole cluster.",
)
@click.option(
    "--exempt-namespace",
    multiple=True,
    show_envvar=True,
    help="A namespace whose pods are left alone: none is evicted, and nobody is evicted for them.",
)
@click.option(
    "--exempt-priority-class",
    multiple=True,
    show_envvar=True,
    help="A priority class whose pods are left alone in the same way.",
)
@click.option(
    "--nominate",
    is_flag=True,
    show_envvar=True,
    help="Write the node of the room into the pod's status: the scheduler then keeps CPU and memory there.",
)
@click.option(
    "--scheduler-preempts",
    type=click.Choice(("auto", "yes", "no")),
    default="auto",
    show_envvar=True,
    help="Whether the scheduler itself preempts for claims, so that this process makes no room; auto asks "
    "the API server for its feature gates.",
)
@command_line.metrics_addr
@command_line.health_addr
@command_line.log_level
def main(log_level: Level, **flags: object) -> None:
    """Evict pods of lower priority for pods that wait only for devices of claims.

    Every flag can be given as the environment variable that is shown with it.
    """
    from driver.process.service import Service

    configure(log_level)
    service = Service()
    try:
        start(service, Options(**flags))  # type: ignore[arg-type] # click's names and types are those of Options
        service.run()
    finally:
        service.stop()


if __name__ == "__main__":
    main()
