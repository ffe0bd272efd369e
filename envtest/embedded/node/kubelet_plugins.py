"""Registers the plugins whose sockets are in a node's registry folder, and checks which of them answer."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from envtest.embedded.control.threads import Threads
from envtest.embedded.node import kubelet_calls as calls
from envtest.embedded.node.kubelet_health import HealthCache, HealthWatch

FIRST_BACK_OFF_SECONDS, LAST_BACK_OFF_SECONDS = 0.5, 122.0
CONNECT_SECONDS = 1.0
_log = logging.getLogger(__name__)


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
        """Whether somebody listens at its socket. The real kubelet watches a lasting connection instead."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_SECONDS)
            try:
                connection.connect(self.endpoint)
            except OSError:
                return False
        return True


@dataclass(slots=True)
class RegistrationSocket:
    """A registration socket: which file it is, its plugin, and after a failure when it is tried again."""

    identity: tuple[int, int]
    plugin: Plugin | None = None
    failures: int = 0
    not_before: float = 0.0


class PluginRegistry:
    """The plugins of one node. Thread-safe.

    ``changed`` is called after a plugin came or went, or ceased to answer.
    """

    def __init__(self, registry_dir: Path, threads: Threads, changed: Callable[[], None]) -> None:
        self._folder = registry_dir
        self._threads = threads
        self._changed = changed
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        self._sockets: dict[Path, RegistrationSocket] = {}
        self._plugins: list[Plugin] = []
        self._unused_since: dict[str, float] = {}
        self.health = HealthCache(changed)

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers whose plugins are registered, sorted."""
        with self._lock:
            return tuple(sorted({plugin.driver for plugin in self._plugins}))

    def scan(self) -> None:
        """Find sockets that were added, removed or replaced, once; the kubelet does it every second."""
        with self._scanning:
            for driver in self.drivers:
                self._note_use(driver)
            found = {path: _identity(path) for path in sorted(self._folder.rglob("*")) if _is_socket(path)}
            for path, socket_file in list(self._sockets.items()):
                # A socket that was made anew is another plugin: the old one is deregistered first.
                if found.get(path) != socket_file.identity:
                    self._deregister(path)
            for path, identity in found.items():
                if identity is not None:
                    self._try(path, self._sockets.setdefault(path, RegistrationSocket(identity)))

    def plugin(self, driver: str) -> Plugin:
        """The plugin that is called for a driver: the newest that answers, else the newest.

        Raises KubeletError.
        """
        with self._lock:
            plugins = [plugin for plugin in self._plugins if plugin.driver == driver]
        if not plugins:
            raise calls.KubeletError(f"DRA driver {driver} is not registered")
        answering = [plugin for plugin in plugins if plugin.answers]
        # During a rolling update two instances of a plugin are registered.
        return (answering or plugins)[-1]

    def unused(self, seconds: float) -> tuple[list[str], float | None]:
        """The drivers without an answering plugin for so long, and in how many seconds one more follows."""
        moment = time.monotonic()
        with self._lock:
            since = dict(self._unused_since)
        over = [driver for driver, start in since.items() if moment - start >= seconds]
        rest = [start + seconds - moment for driver, start in since.items() if driver not in over]
        return over, min(rest, default=None)

    def wiped(self, driver: str) -> None:
        """Note that the slices of an unused driver are wiped; nothing is to be done until it comes back."""
        with self._lock:
            self._unused_since.pop(driver, None)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            plugins, self._plugins = self._plugins, []
        for plugin in plugins:
            _end(plugin)

    def _try(self, path: Path, socket_file: RegistrationSocket) -> None:
        """Register the plugin behind a new socket; a failure is tried again, each time later."""
        if socket_file.plugin is not None or time.monotonic() < socket_file.not_before:
            return
        try:
            socket_file.plugin = self._register(path)
        except (grpc.RpcError, calls.KubeletError) as error:
            # The kubelet's exponential back-off for plugins: 0.5 s, doubled up to 2 min 2 s.
            delay = min(FIRST_BACK_OFF_SECONDS * 2**socket_file.failures, LAST_BACK_OFF_SECONDS)
            socket_file.failures = min(socket_file.failures + 1, 16)
            socket_file.not_before = time.monotonic() + delay
            text = calls.rpc_text(error) if isinstance(error, grpc.RpcError) else error
            _log.info("the plugin at %s is not registered: %s", path, text)

    def _register(self, path: Path) -> Plugin:
        info = calls.get_info(path)
        with self._lock:
            endpoints = frozenset(one.endpoint for one in self._plugins if one.driver == info.name)
        # No endpoint means that the service is at the registration socket.
        info.endpoint = info.endpoint or str(path)
        refusal = calls.reason_to_refuse(info, endpoints)
        if refusal:
            calls.notify(path, refusal)
            raise calls.KubeletError(refusal)
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
            self._threads.spawn(f"health of {plugin.driver}", plugin.watch.run, plugin.watch.stop)
        self._note_use(plugin.driver)
        self._changed()
        return plugin

    def _deregister(self, path: Path) -> None:
        socket_file = self._sockets.pop(path)
        if socket_file.plugin is not None:
            self._drop(socket_file.plugin)
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
    # Names with a leading dot are for sockets that are not ready yet.
    return not path.name.startswith(".") and path.is_socket()


def _identity(path: Path) -> tuple[int, int] | None:
    """Inode and modification time of a socket, which identify it; None if it is gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    # An inode number is used again soon, so the time is needed as well. Not ctime, which a chmod changes.
    return found.st_ino, found.st_mtime_ns
