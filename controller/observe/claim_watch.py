"""Follows which devices of a pool claims are given, for as long as somebody asks it to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from controller.observe.allocations import RESOURCE_CLAIMS, given_devices
from driver.kube.backoff import Backoff
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.errors import ApiError
    from driver.kube.client import KubeClient

_log = get_logger(__name__)

_RETRY_SECONDS = (1.0, 60.0)


class ClaimWatch:
    """Tells which devices of the pool are allocated, while ``follow`` has asked for it.

    Claims cannot be selected by pool, so the watch gets those of the whole cluster, and keeps only those that
    have a device of the pool. ``run`` works in the caller's thread until ``stop``; ``on_change`` is called
    there with the names when they have changed, and with none when nobody asks any more.
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
        """Ask for it, or say that nobody asks any more; returns at once."""
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
        """Follow the claims whenever that is asked for."""
        while (reflector := self._next()) is not None:
            reflector.run()
            self._tell(frozenset())

    def _next(self) -> Reflector | None:
        """Wait until it is asked for; what does it then, None when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._asked or self._stopped)
            if self._stopped:
                return None
            self._resting = threading.Event()
            self._reflector = Reflector(
                self._client,
                Selection(RESOURCE_CLAIMS, {}, {}),
                self._resting,
                on_event=lambda _type, _claim: self._tell_current(),
                on_list=lambda _claims: self._tell_current(),
                on_failure=self._failed,
                backoff=Backoff(*_RETRY_SECONDS),
                concerns=lambda claim: bool(self._given(claim)),
            )
            return self._reflector

    def _rest(self) -> None:
        """End what follows the claims now. The lock is held."""
        self._resting.set()
        if self._reflector is not None:
            self._reflector.wake()

    def _given(self, claim: dict[str, Any]) -> frozenset[str]:
        return given_devices([claim], driver=self._driver, pool=self._pool)

    def _tell_current(self) -> None:
        if self._reflector is not None:
            claims, _ = self._reflector.snapshot()
            self._tell(given_devices(claims, driver=self._driver, pool=self._pool))

    def _tell(self, names: frozenset[str]) -> None:
        if names != self._told:
            self._told = names
            self._on_change(names)

    def _failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("claims not followed", error=str(error), again_in_seconds=round(wait_seconds, 2))
