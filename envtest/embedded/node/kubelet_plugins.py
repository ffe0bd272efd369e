"""Registers the plugins whose sockets are in a node's registry folder, and knows which are connected."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from driver.process.log import get_logger
from driver.process.service import Service
from envtest.embedded.node import kubelet_calls as calls
from envtest.embedded.node.kubelet_calls import KubeletError
from envtest.embedded.node.kubelet_health import HealthMemory, HealthWatch

FIRST_BACK_OFF_SECONDS, LAST_BACK_OFF_SECONDS = 0.5, 122.0
CONNECT_SECONDS = 1.0
_log = get_logger(__name__)


@dataclass(slots=True)
class Plugin:
    """A registered plugin, and the service of its driver that is called."""

    driver: str
    endpoint: str
    service: str
    channel: grpc.Channel
    watch: HealthWatch | None = None

    @property
    def answers(self) -> bool:
        """Whether somebody listens at its socket, which stands for the kubelet's lasting connection to it."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_SECONDS)
            try:
                connection.connect(self.endpoint)
            except OSError:
                return False
        return True


@dataclass(slots=True)
class Seen:
    """A registration socket: which file it is, and its plugin, or when it is tried again after a failure."""

    identity: tuple[int, int]
    plugin: Plugin | None = None
    failures: int = 0
    not_before: float = field(default=0.0)


class PluginRegistry:
    """The plugins of one node. Thread-safe.

    ``changed`` is called after a plugin came or went, or ceased to answer.
    """

    def __init__(self, registry_dir: Path, service: Service, changed: Callable[[], None]) -> None:
        self._folder = registry_dir
        self._service = service
        self._changed = changed
        self._lock = threading.RLock()
        self._looking = threading.Lock()
        self._seen: dict[Path, Seen] = {}
        self._plugins: list[Plugin] = []
        self._unused_since: dict[str, float] = {}
        self.health = HealthMemory(changed)

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers whose plugins are registered, sorted."""
        with self._lock:
            return tuple(sorted({plugin.driver for plugin in self._plugins}))

    def look(self) -> None:
        """Look once for sockets that were added, removed or replaced; the kubelet does it every second."""
        with self._looking:
            for driver in self.drivers:
                self._note_use(driver)
            found = {path: _identity(path) for path in sorted(self._folder.rglob("*")) if _is_socket(path)}
            for path, seen in list(self._seen.items()):
                if found.get(path) != seen.identity:
                    self._deregister(path)
            for path, identity in found.items():
                if identity is not None:
                    self._try(path, self._seen.setdefault(path, Seen(identity)))

    def plugin(self, driver: str) -> Plugin:
        """The plugin that is called for a driver: the newest that answers, else the newest.

        Raises KubeletError.
        """
        with self._lock:
            plugins = [plugin for plugin in self._plugins if plugin.driver == driver]
        if not plugins:
            raise KubeletError(f"DRA driver {driver} is not registered")
        answering = [plugin for plugin in plugins if plugin.answers]
        return (answering or plugins)[-1]

    def unused(self, seconds: float) -> tuple[list[str], float | None]:
        """Drivers without a plugin that answers for so long, and in how many seconds the next one will be."""
        moment = time.monotonic()
        with self._lock:
            since = dict(self._unused_since)
        over = [driver for driver, start in since.items() if moment - start >= seconds]
        rest = [start + seconds - moment for driver, start in since.items() if driver not in over]
        return over, min(rest, default=None)

    def wiped(self, driver: str) -> None:
        """The slices of an unused driver are wiped: there is nothing more to do until it comes back."""
        with self._lock:
            self._unused_since.pop(driver, None)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            plugins, self._plugins = self._plugins, []
        for plugin in plugins:
            _end(plugin)

    def _try(self, path: Path, seen: Seen) -> None:
        """Register the plugin behind a new socket; a failure is tried again, each time later."""
        if seen.plugin is not None or time.monotonic() < seen.not_before:
            return
        try:
            seen.plugin = self._register(path)
        except (grpc.RpcError, KubeletError) as error:
            delay = min(FIRST_BACK_OFF_SECONDS * 2**seen.failures, LAST_BACK_OFF_SECONDS)
            seen.failures = min(seen.failures + 1, 16)
            seen.not_before = time.monotonic() + delay
            text = calls.rpc_text(error) if isinstance(error, grpc.RpcError) else error.what
            _log.info("plugin not registered", socket=str(path), error=text)

    def _register(self, path: Path) -> Plugin:
        info = calls.get_info(path)
        with self._lock:
            endpoints = frozenset(one.endpoint for one in self._plugins if one.driver == info.name)
        info.endpoint = info.endpoint or str(path)
        refusal = calls.reason_to_refuse(info, endpoints)
        if refusal:
            calls.notify(path, refusal)
            raise KubeletError(refusal)
        channel = grpc.insecure_channel(f"unix:{info.endpoint}", options=calls.CHANNEL_OPTIONS)
        plugin = Plugin(info.name, info.endpoint, calls.service_of(info), channel)
        with self._lock:
            self._plugins.append(plugin)
        try:
            calls.notify(path, "")
        except grpc.RpcError:
            self._drop(plugin)
            raise
        health = calls.health_service_of(info)
        if health is not None:
            plugin.watch = HealthWatch(plugin.driver, channel, health, self.health)
            self._service.spawn(f"health of {plugin.driver}", plugin.watch.run, stop=plugin.watch.stop)
        self._note_use(plugin.driver)
        self._changed()
        return plugin

    def _deregister(self, path: Path) -> None:
        seen = self._seen.pop(path)
        if seen.plugin is not None:
            self._drop(seen.plugin)
            self._changed()

    def _drop(self, plugin: Plugin) -> None:
        with self._lock:
            if plugin in self._plugins:
                self._plugins.remove(plugin)
        self._note_use(plugin.driver)
        _end(plugin)

    def _note_use(self, driver: str) -> None:
        """Note since when a driver has had no plugin that answers."""
        with self._lock:
            plugins = [plugin for plugin in self._plugins if plugin.driver == driver]
        if any(plugin.answers for plugin in plugins):
            with self._lock:
                self._unused_since.pop(driver, None)
            return
        with self._lock:
            new = driver not in self._unused_since
            self._unused_since.setdefault(driver, time.monotonic())
        if new:
            self._changed()


def _end(plugin: Plugin) -> None:
    if plugin.watch is not None:
        plugin.watch.stop()
    plugin.channel.close()


def _is_socket(path: Path) -> bool:
    return not path.name.startswith(".") and path.is_socket()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a socket is; None when it went meanwhile."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns  # not ctime, which a later chmod changes
