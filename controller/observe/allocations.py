"""Lists which devices of a pool are allocated to claims, and watches the claims while that is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from driver.errors import ApiError
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger

_RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"

_PAGE_SIZE = 500

_log = get_logger(__name__)

_RETRY_SECONDS = (1.0, 60.0)


def allocated_devices(client: KubeClient, *, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated to claims of any namespace now; raises ApiError."""
    return _allocated_to(_claims(client), driver=driver, pool=pool)


def _allocated_to(claims: Iterable[dict[str, Any]], *, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated to these claims."""
    # Admin access is left out: it does not keep the device from others.
    return frozenset(
        str(result.get("device"))
        for claim in claims
        for result in _results(claim)
        if (result.get("driver"), result.get("pool")) == (driver, pool)
        and result.get("adminAccess") is not True
    )


def _claims(client: KubeClient) -> Iterator[dict[str, Any]]:
    # In pages: the API server holds a whole answer in memory, and a cluster can have many claims.
    params = {"limit": str(_PAGE_SIZE)}
    while True:
        page = client.get(_RESOURCE_CLAIMS, params)
        yield from page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        params["continue"] = token


def _results(claim: dict[str, Any]) -> list[dict[str, Any]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


class ClaimWatch:
    """Reports which devices of the pool are allocated, from ``follow(True)`` to ``follow(False)``.

    ``run`` works in the caller's thread until ``stop``. ``on_change`` is called there with the names when
    they have changed, and with no names after ``follow(False)``.
    """

    def __init__(
        self, client: KubeClient, on_change: Callable[[frozenset[str]], None], *, driver: str, pool: str
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._driver, self._pool = driver, pool
        self._changed = threading.Condition()
        self._is_wanted = False
        self._stopped = False
        self._watch_ended = threading.Event()
        self._reflector: Reflector | None = None
        self._reported: frozenset[str] = frozenset()

    def follow(self, wanted: bool) -> None:
        """Begin to watch, or stop it; returns at once."""
        with self._changed:
            if wanted == self._is_wanted:
                return
            self._is_wanted = wanted
            if not wanted:
                self._end_watch()
            self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._end_watch()
            self._changed.notify_all()

    def run(self) -> None:
        """Watch the claims whenever ``follow`` wants it."""
        while (reflector := self._next()) is not None:
            reflector.run()
            # What is not watched is not known any more, so it must not block anything.
            self._report(frozenset())

    def _next(self) -> Reflector | None:
        """Wait until ``follow`` wants a watch; returns the reflector to run, None when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wanted or self._stopped)
            if self._stopped:
                return None
            self._watch_ended = threading.Event()
            # Claims have no field selector for a pool. So the watch gets the claims of the whole cluster, and
            # the reflector keeps only those with a device of this pool.
            self._reflector = Reflector(
                self._client,
                Selection(_RESOURCE_CLAIMS, {}, {}),
                self._watch_ended,
                on_event=lambda _type, _claim: self._report_current(),
                on_list=lambda _claims: self._report_current(),
                on_failure=self._failed,
                backoff=Backoff(*_RETRY_SECONDS),
                concerns=lambda claim: bool(self._devices_of(claim)),
            )
            return self._reflector

    def _end_watch(self) -> None:
        """Stop the running reflector. The lock is held."""
        self._watch_ended.set()
        # It waits for the API server; only wake() ends that at once.
        if self._reflector is not None:
            self._reflector.wake()

    def _devices_of(self, claim: dict[str, Any]) -> frozenset[str]:
        return _allocated_to([claim], driver=self._driver, pool=self._pool)

    def _report_current(self) -> None:
        if self._reflector is not None:
            claims, _ = self._reflector.snapshot()
            self._report(_allocated_to(claims, driver=self._driver, pool=self._pool))

    def _report(self, names: frozenset[str]) -> None:
        if names != self._reported:
            self._reported = names
            self._on_change(names)

    def _failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("cannot follow the claims", error=str(error), again_in_seconds=round(wait_seconds, 2))
