"""The state of an MPS control daemon: its servers, their clients and limits, and its command language.

Answers are those of the real daemon where its documentation or reports show them. It answers nothing to
most commands that succeed. The texts of refusals are made up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

QUESTIONS = frozenset(
    {"get_server_list", "get_server_status", "get_client_list", "get_device_client_list", "help"}
)
"""Commands that any user may give; all others change something or show limits."""

_MIB_PER_GIB = 1024
_LIMIT = re.compile(r"([1-9]\d*)([GM])B?")
MOST_PERCENT = 100.0


class CommandRefused(Exception):
    """The daemon refuses a command; the message is its answer."""


@dataclass(slots=True)
class Limits:
    """The limits of each client: percent of the threads, and MiB of memory by device, if it has any."""

    percentage: float = MOST_PERCENT
    pinned_mib: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Limits:
        """An independent copy."""
        return Limits(self.percentage, dict(self.pinned_mib))

    def tightened(self, own: Limits) -> Limits:
        """These limits with those of a client's environment, which can only lower them."""
        pinned = dict(self.pinned_mib)
        for device, mib in own.pinned_mib.items():
            pinned[device] = min(mib, pinned.get(device, mib))
        return Limits(min(self.percentage, own.percentage), pinned)


@dataclass(slots=True)
class Server:
    """One running nvidia-cuda-mps-server; ``clients`` are process ids and the limits that they got."""

    pid: int
    uid: int
    limits: Limits
    clients: dict[int, Limits] = field(default_factory=dict)
    closing: bool = False


class Processes(Protocol):
    """What Control needs of the daemon that it belongs to."""

    def start_server(self, uid: int) -> int:
        """Start a server and return its process id; raises CommandRefused."""
        ...

    def end_server(self, pid: int) -> None:
        """End a server."""
        ...

    def drop_client(self, pid: int) -> None:
        """End the connection of a client."""
        ...


class Control:
    """The state of one daemon; ``devices`` are the UUIDs of its devices in the order of their ordinals."""

    def __init__(self, devices: tuple[str, ...], most_clients: int, processes: Processes) -> None:
        self.devices = devices
        self.defaults = Limits()
        self.servers: dict[int, Server] = {}
        self.quitting = False
        self.multi_user = False
        self.most_clients = most_clients
        self._processes = processes
        # Command -> function, least and most number of arguments.
        self._commands: dict[str, tuple[Callable[..., str], int, int]] = {
            "get_server_list": (self._get_server_list, 0, 0),
            "get_server_status": (self._get_server_status, 1, 1),
            "start_server": (self._start_server, 2, 2),
            "shutdown_server": (self._shutdown_server, 1, 2),
            "get_client_list": (self._get_client_list, 1, 1),
            "get_device_client_list": (self._get_device_client_list, 0, 1),
            "terminate_client": (self._terminate_client, 2, 2),
            "set_default_active_thread_percentage": (self._set_default_percentage, 1, 1),
            "get_default_active_thread_percentage": (lambda: f"{self.defaults.percentage:.1f}", 0, 0),
            "set_active_thread_percentage": (self._set_percentage, 2, 2),
            "get_active_thread_percentage": (lambda p: f"{self._server(p).limits.percentage:.1f}", 1, 1),
            "set_default_device_pinned_mem_limit": (self._set_default_pinned, 2, 2),
            "get_default_device_pinned_mem_limit": (lambda d: self._pinned(self.defaults, d), 1, 1),
            "set_device_pinned_mem_limit": (self._set_pinned, 3, 3),
            "get_device_pinned_mem_limit": (lambda p, d: self._pinned(self._server(p).limits, d), 2, 2),
            "help": (self._help, 0, 0),
        }

    def answer(self, words: list[str]) -> str:
        """Execute a command and return its answer, without a newline at its end; raises CommandRefused."""
        command, least, most = self._commands.get(words[0], (self._help, 0, -1))
        if most < 0:
            raise CommandRefused(f"Unknown command: {words[0]}")
        if not least <= len(words) - 1 <= most:
            raise CommandRefused(f"Invalid number of arguments for {words[0]}")
        return command(*words[1:])

    def connect(self, pid: int, uid: int, own: Limits) -> Server | None:
        """Connect a client to the server of its user; None while clients of another user have to end first.

        Raises CommandRefused if the server has its most clients, or cannot start.
        """
        if self.quitting:
            raise CommandRefused("the control daemon is quitting")
        server = next((s for s in self.servers.values() if not s.closing), None)
        # Without multi-user mode one server runs at a time, and it serves one user.
        if server is not None and server.uid != uid and not self.multi_user:
            if server.clients:
                return None
            self._end(server)
            server = None
        if server is None:
            server = self._begin(uid)
        if len(server.clients) >= self.most_clients:
            raise CommandRefused(f"the server has {self.most_clients} clients, and takes no more")
        server.clients[pid] = server.limits.tightened(own)
        return server

    def client_left(self, pid: int) -> None:
        """Forget a client. A server that is shutting down ends with its last client."""
        for server in list(self.servers.values()):
            if server.clients.pop(pid, None) is not None and not server.clients and server.closing:
                self._end(server)

    def server_left(self, pid: int) -> None:
        """Forget a server that has ended by itself, and drop its clients."""
        server = self.servers.pop(pid, None)
        for client in list(server.clients) if server else ():
            self._processes.drop_client(client)

    def shut(self, *, force: bool) -> bool:
        """Begin to quit, or end all servers at once with ``force``; returns whether all have ended."""
        self.quitting = True
        for server in list(self.servers.values()):
            self._close(server, force=force)
        return not self.servers

    def _begin(self, uid: int) -> Server:
        pid = self._processes.start_server(uid)
        self.servers[pid] = Server(pid, uid, self.defaults.copy())
        return self.servers[pid]

    def _end(self, server: Server) -> None:
        del self.servers[server.pid]
        for client in list(server.clients):
            self._processes.drop_client(client)
        self._processes.end_server(server.pid)

    def _close(self, server: Server, *, force: bool) -> None:
        server.closing = True
        if force or not server.clients:
            self._end(server)

    def _server(self, word: str) -> Server:
        server = self.servers.get(int(word)) if word.isascii() and word.isdigit() else None
        if server is None:
            raise CommandRefused(f"Server {word} not found")
        return server

    def _get_server_list(self) -> str:
        return "\n".join(str(pid) for pid in sorted(self.servers))

    def _get_server_status(self, pid: str) -> str:
        return "SHUTTING_DOWN" if self._server(pid).closing else "ACTIVE"

    def _start_server(self, option: str, uid: str) -> str:
        if option != "-uid" or not uid.isdigit():
            raise CommandRefused("Usage: start_server -uid <user id>")
        if self.servers:
            raise CommandRefused("An MPS server is already running")
        self._begin(int(uid))
        return ""

    def _shutdown_server(self, pid: str, option: str = "") -> str:
        if option not in ("", "-f"):
            raise CommandRefused("Usage: shutdown_server <PID> [-f]")
        self._close(self._server(pid), force=bool(option))
        return ""

    def _get_client_list(self, pid: str) -> str:
        return "\n".join(str(client) for client in sorted(self._server(pid).clients))

    def _get_device_client_list(self, pid: str = "") -> str:
        servers = [self._server(pid)] if pid else list(self.servers.values())
        clients = sorted(client for server in servers for client in server.clients)
        return "\n".join(f"{device} {client}" for device in self.devices for client in clients)

    def _terminate_client(self, pid: str, client: str) -> str:
        if not client.isdigit() or int(client) not in self._server(pid).clients:
            raise CommandRefused(f"Client {client} not found")
        self._processes.drop_client(int(client))
        self.client_left(int(client))
        return ""

    def _set_default_percentage(self, value: str) -> str:
        self.defaults.percentage = thread_percentage(value)
        return f"{self.defaults.percentage:.1f}"

    def _set_percentage(self, pid: str, value: str) -> str:
        self._server(pid).limits.percentage = thread_percentage(value)
        return f"{self._server(pid).limits.percentage:.1f}"

    def _set_default_pinned(self, device: str, value: str) -> str:
        self.defaults.pinned_mib[self._device(device)] = limit_mib(value)
        return ""

    def _set_pinned(self, pid: str, device: str, value: str) -> str:
        self._server(pid).limits.pinned_mib[self._device(device)] = limit_mib(value)
        return ""

    def _device(self, word: str) -> str:
        """The key of a device's limit: its ordinal, or its UUID."""
        # The real daemon was seen to accept limits by UUID without applying them. Here they have keys of
        # their own, which no client reads, since clients count devices by ordinal.
        if word in self.devices or (word.isdigit() and int(word) < len(self.devices)):
            return word
        raise CommandRefused(f"Invalid device {word}")

    def _pinned(self, limits: Limits, device: str) -> str:
        """A limit as the daemon shows it: from 1 GiB on in whole G, rounded down; ``0M`` if none is set."""
        mib = limits.pinned_mib.get(self._device(device), 0)
        return f"{mib // _MIB_PER_GIB}G" if mib >= _MIB_PER_GIB else f"{mib}M"

    def _help(self) -> str:
        return "\n".join([*self._commands, "quit"])


def limit_mib(text: str) -> int:
    """The MiB of ``10G``, ``512M`` or, as in environments, ``512MB``; raises CommandRefused."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise CommandRefused(f"Invalid memory limit {text}: an integer and G or M")
    return int(match[1]) * (_MIB_PER_GIB if match[2] == "G" else 1)


def thread_percentage(text: str) -> float:
    """A percentage of the threads, above 0 and up to 100; raises CommandRefused."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= MOST_PERCENT:
        raise CommandRefused(f"Invalid active thread percentage {text}")
    return value
