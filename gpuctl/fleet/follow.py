"""Follows slices and claims by watches, and reports the state of the nodes after each change."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.reflector import Reflector, Selection
from gpuctl.cli.cluster import DRA
from gpuctl.cli.failures import error_text
from gpuctl.cli.output import say
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.nodes import NodeState

Object = dict[str, Any]


class ClusterWatch:
    """The slices and claims of a cluster, kept up to date by watches while the block lasts."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._stop = threading.Event()
        # What ends the main thread's wait: None, or the error of a watch.
        self._wakes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._reflectors = [
            Reflector(
                client,
                Selection(f"{DRA}/{resource}", {}, {}),
                self._stop,
                on_event=lambda _type, _item: self.wake(),
                on_list=lambda _count: self.wake(),
                on_failure=lambda error, _wait_seconds: self._wakes.put(error),
            )
            for resource in ("resourceslices", "resourceclaims")
        ]
        self._threads = [threading.Thread(target=self._guarded, args=(one,)) for one in self._reflectors]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        # In this order: a watch whose connection is closed looks whether it has to stop, else it starts
        # again.
        self._stop.set()
        self._client.close()
        for thread in self._threads:
            thread.join()

    def wake(self) -> None:
        """End the wait at once; a signal handler may call it at any time."""
        # SimpleQueue.put is reentrant: a handler may interrupt another put in the same thread.
        self._wakes.put(None)

    def wait(self) -> list[ApiError]:
        """Wait until something changes; returns the errors of watches that ended meanwhile and are restarted.

        Raises KeyboardInterrupt at Ctrl-C, and the error of a watch that cannot be restarted.
        """
        first = self._wakes.get()
        return self._broken([first]) + self.drained()

    def drained(self) -> list[ApiError]:
        """Like ``wait``, but without waiting."""
        found = []
        while not self._wakes.empty():
            found.append(self._wakes.get())
        return self._broken(found)

    def _broken(self, found: list[BaseException | None]) -> list[ApiError]:
        broken = []
        for error in filter(None, found):
            if not isinstance(error, ApiError):
                raise error
            broken.append(error)
        return broken

    def snapshot(self) -> tuple[list[Object], list[Object]] | None:
        """The slices and the claims; None until both were listed."""
        if not all(one.synced.is_set() for one in self._reflectors):
            return None
        slices, claims = (one.snapshot()[0] for one in self._reflectors)
        return slices, claims

    def _guarded(self, reflector: Reflector) -> None:
        try:
            reflector.run()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._wakes.put(error)


def follow(
    client: KubeClient, shown: Sequence[NodeState], tell: Callable[[Sequence[NodeState]], None]
) -> None:
    """Call ``tell`` whenever the nodes differ from those ``shown`` last; never returns.

    A watch that ends is reported on stderr and restarted. Raises KeyboardInterrupt at Ctrl-C, and
    AllocationFailed for an object that is malformed.
    """
    fleet = Fleet()
    with ClusterWatch(client) as followed:
        while True:
            for error in followed.wait():
                say(f"gpuctl: {watch_error_text(error)}", err=True)
            seen = followed.snapshot()
            if seen is None:  # the first list of slices or claims has not come yet
                continue
            nodes = [view.state for view in fleet.read(*seen)]
            if nodes != shown:
                tell(nodes)
                shown = nodes


def watch_error_text(error: ApiError) -> str:
    """Why a watch ended, for people."""
    return f"{error_text(error)}; restarting the watch"
