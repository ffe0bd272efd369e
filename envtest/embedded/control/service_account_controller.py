"""Gives each namespace its service account ``default``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driver.process.service import Service
from envtest.embedded.control.change_loop import ChangeLoop
from envtest.embedded.control.objects import NAMESPACES, SERVICE_ACCOUNTS, Objects, is_deleted
from envtest.embedded.control.turns import Turns

if TYPE_CHECKING:
    from envtest.embedded.api.server import EmbeddedApiServer

NAME = "service account controller"


class EmbeddedServiceAccountController:
    """Looks at all namespaces again after every change of one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        self._objects = Objects(server)
        self._service = Service()
        self._turns = Turns(NAME)
        watched = (NAMESPACES, SERVICE_ACCOUNTS)
        self._loop = ChangeLoop(NAME, server, watched, self.sync)

    def start(self) -> None:
        """Run in a thread of its own until ``stop``."""
        self._loop.start(self._service)

    def stop(self) -> None:
        """End the thread."""
        self._service.stop()

    def sync(self) -> float | None:
        """Create the accounts that are missing; in how many seconds one that failed is due again."""
        return self._turns.give(self._objects.list(NAMESPACES), self._sync_namespace)

    def _sync_namespace(self, namespace: dict[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        known = self._objects.find(SERVICE_ACCOUNTS, name, "default")
        if known is None and not is_deleted(namespace):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self._objects.create(SERVICE_ACCOUNTS, name, account)
