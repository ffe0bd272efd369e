"""Lists which devices of a pool are allocated to claims, and watches that while it is needed."""

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
    """The names of the pool's devices that are allocated, by the claims of all namespaces as they are now.

    Admin access is left out: it takes no device away from others. Raises ApiError.
    """
    return _given_devices(_claims(client), driver=driver, pool=pool)


def _given_devices(claims: Iterable[dict[str, Any]], *, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that these claims were given; admin access is left out."""
    return frozenset(
        str(result.get("device"))
        for claim in claims
        for result in _results(claim)
        if (result.get("driver"), result.get("pool")) == (driver, pool)
        and result.get("adminAccess") is not True
    )


def _claims(client: KubeClient) -> Iterator[dict[str, Any]]:
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

    Claims cannot be selected by pool, so the watch gets those of the whole cluster, and keeps only those that
    have a device of the pool. ``run`` works in the caller's thread until ``stop``; ``on_change`` is called
    there with the names when they have changed, and with no names once ``follow`` ended the watch.
    """

    def __init__(
        self, client: KubeClient, on_change: Callable[[frozenset[str]], None], *, driver: str, pool: str
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._driver, self._pool = driver, pool
        self._changed = threading.Condition()
        self._asked = False
        self._stopped = False
        self._resting = threading.Event()
        self._reflector: Reflector | None = None
        self._told: frozenset[str] = frozenset()

    def follow(self, asked: bool) -> None:
        """Begin to watch, or end it; returns at once."""
        with self._changed:
            if asked == self._asked:
                return
            self._asked = asked
            if not asked:
                self._rest()
            self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._rest()
            self._changed.notify_all()

    def run(self) -> None:
        """Watch the claims whenever ``follow`` asks for it."""
        while (reflector := self._next()) is not None:
            reflector.run()
            self._tell(frozenset())

    def _next(self) -> Reflector | None:
        """Wait until ``follow`` asks for it; the reflector to run then, None when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._asked or self._stopped)
            if self._stopped:
                return None
            self._resting = threading.Event()
            self._reflector = Reflector(
                self._client,
                Selection(_RESOURCE_CLAIMS, {}, {}),
                self._resting,
                on_event=lambda _type, _claim: self._tell_current(),
                on_list=lambda _claims: self._tell_current(),
                on_failure=self._failed,
                backoff=Backoff(*_RETRY_SECONDS),
                concerns=lambda claim: bool(self._given(claim)),
            )
            return self._reflector

    def _rest(self) -> None:
        """Stop the running reflector. The lock is held."""
        self._resting.set()
        if self._reflector is not None:
            self._reflector.wake()

    def _given(self, claim: dict[str, Any]) -> frozenset[str]:
        return _given_devices([claim], driver=self._driver, pool=self._pool)

    def _tell_current(self) -> None:
        if self._reflector is not None:
            claims, _ = self._reflector.snapshot()
            self._tell(_given_devices(claims, driver=self._driver, pool=self._pool))

    def _tell(self, names: frozenset[str]) -> None:
        if names != self._told:
            self._told = names
            self._on_change(names)

    def _failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("claims not followed", error=str(error), again_in_seconds=round(wait_seconds, 2))
