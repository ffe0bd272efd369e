"""Follows slices and claims by watches, and tells the state of the nodes after each change."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from driver.errors import ApiError
from driver.kube.reflector import Reflector, Selection
from gpuctl.cli.cluster_view import DRA
from gpuctl.cli.failures import told
from gpuctl.status.fleet import NodeState, fleet

if TYPE_CHECKING:
    from driver.kube.client import KubeClient


def follow(
    client: KubeClient, shown: Sequence[NodeState], tell: Callable[[Sequence[NodeState]], None]
) -> None:
    """Call ``tell`` whenever the nodes are otherwise than they were ``shown`` last; never returns.

    Nothing is asked again and again: the API server says what changes. A watch that breaks off is told on
    stderr and begun anew. Raises KeyboardInterrupt at Ctrl-C, and AllocationFailed for an object that is
    malformed.
    """
    stop, wake = threading.Event(), threading.Event()
    failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def failed(error: BaseException, _wait_seconds: float = 0.0) -> None:
        failures.put(error)
        wake.set()

    reflectors = [
        Reflector(
            client,
            Selection(f"{DRA}/{resource}", {}, {}),
            stop,
            on_event=lambda _type, _item: wake.set(),
            on_list=lambda _count: wake.set(),
            on_failure=failed,
        )
        for resource in ("resourceslices", "resourceclaims")
    ]
    threads = [threading.Thread(target=_guarded, args=(one, failed)) for one in reflectors]
    for thread in threads:
        thread.start()
    try:
        while True:
            wake.wait()
            wake.clear()
            _tell_failures(failures)
            if all(one.synced.is_set() for one in reflectors):
                nodes = fleet(*(one.snapshot()[0] for one in reflectors))
                if nodes != shown:
                    tell(nodes)
                    shown = nodes
    finally:
        stop.set()
        client.close()
        for thread in threads:
            thread.join()


def _guarded(reflector: Reflector, failed: Callable[[BaseException], None]) -> None:
    try:
        reflector.run()
    except BaseException as error:  # noqa: BLE001 - the main thread raises it
        failed(error)


def _tell_failures(failures: queue.SimpleQueue[BaseException]) -> None:
    while not failures.empty():
        error = failures.get()
        if not isinstance(error, ApiError):
            raise error
        click.echo(f"gpuctl: {told(error)}; the watch begins anew", err=True)
