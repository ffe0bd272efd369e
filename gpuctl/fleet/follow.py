"""Follows a cluster by watches, and reports the state of the nodes and what is wrong after each change."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from driver.errors import ApiError
from driver.kinds.channel import CliqueState, clique_states
from driver.kube.client import KubeClient
from driver.kube.errors import Forbidden
from driver.kube.reflector import Reflector
from gpuctl.cli.failures import error_text
from gpuctl.cli.output import say
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.nodes import NodeState
from gpuctl.fleet.seen import OPTIONAL, SELECTIONS, Seen


class ClusterWatch:
    """What ``status`` reads of a cluster, kept up to date by watches while the block lasts."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._stop = threading.Event()
        # What ends the main thread's wait: None, or the error of a watch.
        self._wakes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._refused: set[str] = set()
        self._reflectors = {
            name: Reflector(
                client,
                selection,
                self._stop,
                on_event=lambda _type, _item: self.wake(),
                on_list=lambda _count: self.wake(),
                on_failure=partial(self._failed, name),
            )
            for name, selection in SELECTIONS.items()
        }
        self._threads = [
            threading.Thread(target=self._guarded, args=(one,)) for one in self._reflectors.values()
        ]

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

    def snapshot(self) -> Seen | None:
        """What was read; None until everything was listed that this user may read."""
        if not all(one.synced.is_set() or name in self._refused for name, one in self._reflectors.items()):
            return None
        found = {name: one.snapshot()[0] for name, one in self._reflectors.items()}
        return Seen(**found, unread=tuple(sorted({OPTIONAL[name] for name in self._refused})))

    def _failed(self, name: str, error: ApiError, _wait_seconds: float) -> None:
        if isinstance(error, Forbidden) and name in OPTIONAL:
            self._refused.add(name)
            self.wake()
        else:
            self._wakes.put(error)

    def _guarded(self, reflector: Reflector) -> None:
        try:
            reflector.run()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._wakes.put(error)


def follow(
    client: KubeClient,
    nodes: Sequence[NodeState],
    problems: Sequence[str],
    cliques: Sequence[CliqueState],
    tell: Callable[[Sequence[NodeState], Sequence[str], Sequence[CliqueState]], None],
) -> None:
    """Call ``tell`` whenever nodes, problems or cliques differ from what was shown last; never returns.

    A watch that ends is reported on stderr and restarted. Raises KeyboardInterrupt at Ctrl-C, and
    AllocationFailed for an object that is malformed.
    """
    fleet = Fleet()
    with ClusterWatch(client) as followed:
        while True:
            for error in followed.wait():
                say(f"gpuctl: {watch_error_text(error)}", err=True)
            seen = followed.snapshot()
            if seen is None:  # a first list has not come yet
                continue
            views = fleet.read(seen.slices, seen.claims)
            states, found = [view.state for view in views], seen.told(views)
            now = states, found, clique_states(seen.slices, seen.claims)
            if now != (nodes, problems, cliques):
                tell(*now)
                nodes, problems, cliques = now


def watch_error_text(error: ApiError) -> str:
    """Why a watch ended, for people."""
    return f"{error_text(error)}; restarting the watch"
