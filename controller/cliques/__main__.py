"""The command that publishes IMEX channels: a process of its own that an administrator switches on."""

from __future__ import annotations

from pathlib import Path

import click

from driver.kinds.channel import MOST_CHANNELS
from driver.process import command_line
from driver.process.log import Level, configure


@command_line.command("gpu-dra-cliques")
@command_line.namespace
@command_line.identity
@command_line.kubeconfig
@click.option(
    "--channels",
    type=click.IntRange(1, MOST_CHANNELS),
    default=64,
    show_envvar=True,
    help="How many channels each NVLink clique has: so many gangs can run in it at once.",
)
@command_line.metrics_addr
@command_line.health_addr
@command_line.log_level
def main(
    log_level: Level,
    namespace: str,
    identity: str,
    kubeconfig: Path | None,
    channels: int,
    metrics_addr: str,
    health_addr: str,
) -> None:
    """Publish the IMEX channels of NVLink cliques, and label the nodes of each clique."""
    # Imported here, so that --help and a usage error need none of it.
    from controller.cliques.publisher import NAME, CliquePublisher
    from driver.kube.client import KubeClient
    from driver.kube.events import EventRecorder
    from driver.kube.lease import Lease
    from driver.process import metrics as numbers
    from driver.process import probes
    from driver.process.service import Service

    configure(log_level)
    service = Service()
    try:
        metrics, stop = numbers.Metrics("cliques"), service.stop_event
        client = KubeClient.connect(kubeconfig, user_agent=NAME, on_request=metrics.request_ended)
        service.on_stop("client", client.close)
        events = EventRecorder(client, NAME, identity)
        lease = Lease(client, namespace, NAME, identity, stop, changed=lambda: publisher.wake())  # noqa: PLW0108 - publisher is made below
        at_work = lambda: service.pulse.work("cliques")  # noqa: E731 - as a method of the pulse with its name
        publisher = CliquePublisher(
            client, lease.is_held, events, stop, channels, at_work, metrics.reflector_restarted
        )
        metrics.show_number("gpu_dra_cliques_leads", lambda: float(lease.is_held()))
        metrics.show(publisher.numbers, "gpu_dra_cliques_nodes", "gpu_dra_cliques_channels")
        numbers.serve(service, metrics_addr, metrics)
        # A replica that waits for the Lease is ready: it would take over at once.
        answers = probes.Probes(lambda: "", service.pulse.hung, publisher.why_not)
        probes.serve(service, health_addr, answers)
        service.catch_signals()
        service.spawn("events", events.run, events.stop)
        service.spawn("lease", lease.run)
        publisher.start(service)
        service.run()
    finally:
        service.stop()


if __name__ == "__main__":
    main()
