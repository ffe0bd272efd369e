"""Answers gpu-memory-hook on a unix socket: whether a container may start.

The hook runs on the host, started by the container runtime before the container's first process. Each
instance of the plugin has a socket of its own in one folder, and the hook tries all of them. A socket is
there only while its instance answers.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from driver.errors import DriverError, StorageError
from driver.kube.decode import decode_json
from driver.process.log import get_logger, operation
from driver.process.sockets import checked_socket_path
from kubeletplugin.kubelet.wire.containers import ContainerStart, NotAnswered
from kubeletplugin.kubelet.wire.names import is_safe_uid
from kubeletplugin.kubelet.wire.server import SOCKET_MODE, is_answered, refuse_if_taken

MOST_AT_ONCE = 256
"""The most containers that start at once, each in a thread. More hooks than that have to ask again."""

GRACE_SECONDS = 5.0
"""How long calls may take to finish when the server stops."""

_BACKLOG = 512
_READ_SECONDS = 2.0
_WRITE_SECONDS = 2.0
_AGAIN_SECONDS = 0.1
_FOLDER_MODE = 0o700
_SUFFIX = ".sock"
# struct ucred of unix(7): process, user, group.
_CREDENTIALS = struct.Struct("3i")
_log = get_logger("memory hook")

MOST_BYTES = 64 * 1024
"""The most bytes of a line, in both directions."""

PROTOCOL = 1

_MOST_CGROUP_CHARACTERS = 16 * 1024
_MOST_MESSAGE_CHARACTERS = 4096
# What runc and crun accept.
_CONTAINER_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.+-]{0,254}", re.ASCII)
_CDI_DEVICE = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.:-]{0,254}", re.ASCII)
# RFC 1123, as the API server checks names of namespaces, containers (labels) and pods (subdomains).
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL.pattern}(?:\.{_LABEL.pattern})*", re.ASCII)

_CONTAINERD = tuple(
    f"io.kubernetes.cri.{name}" for name in ("sandbox-namespace", "sandbox-name", "container-name")
)
# Its value is ``k8s_<container>_<pod>_<namespace>_<UID of the pod>_<attempt>``; no name has an underscore.
_CRI_O = "io.kubernetes.cri-o.ContainerName"
# The labels that the kubelet gives every container (pkg/kubelet/types/labels.go). CRI-O copies them.
_KUBELET = tuple(f"io.kubernetes.{name}" for name in ("pod.namespace", "pod.name", "container.name"))

Names = tuple[str, str, str]
_UNKNOWN: Names = ("", "", "")


class HookSocket:
    """One instance's socket. ``run`` answers until ``stop``, and finishes the calls that it has then."""

    def __init__(self, folder: Path, instance: str, start: Callable[[ContainerStart], None]) -> None:
        """Prepare to serve ``<folder>/<instance>.sock``; ``start`` raises DriverError to refuse a container.

        ``start`` is called from several threads at once, and again for a container whose hook missed the
        answer. If it raises NotAnswered, the hook asks another instance. Raises ConfigError if the path is
        too long for a socket.
        """
        self.path = checked_socket_path(folder.absolute() / f"{instance}{_SUFFIX}")
        self._start = start
        self._listener: socket.socket | None = None
        self._inode = 0
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._stopped = threading.Event()
        self._under_way: list[threading.Thread] = []

    def open(self) -> None:
        """Bind the socket, so that hooks can connect; ``run`` answers them.

        Sockets of instances that are gone are removed. Raises ConfigError if another instance answers at this
        path, StorageError if the folder cannot be used.
        """
        if self._listener is not None:
            return
        folder = self.path.parent
        try:
            for one in (folder.parent, folder):
                one.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            # mkdir() leaves the mode of a folder that is already there.
            folder.chmod(_FOLDER_MODE)
            refuse_if_taken(self.path)
            self._remove_stale(folder)
            self._bind()
        except OSError as error:
            raise StorageError(
                f"cannot make the socket {self.path}: {error.strerror}",
                "make --plugins-dir writable and free space there",
            ) from error
        _log.info("serving", socket=str(self.path))

    def run(self) -> None:
        """Answer until ``stop``; raises what ``open`` does."""
        try:
            if not self._stopped.is_set():
                self.open()
            if self._listener is None or self._wake is None:
                return
            with self._listener as listener:
                for connection in self._accepted(listener, self._wake[0]):
                    self._start_thread(connection)
            end_of_grace = time.monotonic() + GRACE_SECONDS
            for thread in self._under_way:
                thread.join(max(0.0, end_of_grace - time.monotonic()))
        finally:
            for end in self._wake or ():
                end.close()
        _log.info("stopped serving", socket=str(self.path))

    def stop(self) -> None:
        """Have ``run`` accept no more hooks, answer those that it has, and return. Can be repeated."""
        self._stopped.set()
        if self._wake is not None:
            # The socket pair is closed if run() has returned.
            with suppress(OSError):
                self._wake[1].send(b"\0")

    def _bind(self) -> None:
        # bind() makes the file with a mode from the umask, and connect() fails until listen(). So the socket
        # has a hidden name, which the hook ignores, until both are done.
        hidden = self.path.with_name(f".{self.path.name}")
        hidden.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(os.fspath(hidden))
            hidden.chmod(SOCKET_MODE)
            listener.listen(_BACKLOG)
            # accept() must not block: the hook may have gone between select() and accept().
            listener.settimeout(0)
            self._inode = hidden.lstat().st_ino
            hidden.rename(self.path)
        except OSError:
            listener.close()
            raise
        self._wake = socket.socketpair()
        self._listener = listener

    def _remove_stale(self, folder: Path) -> None:
        """Remove the sockets of instances that do not answer any more."""
        # Another instance that is just starting has its socket under a hidden name until it answers.
        for path in folder.glob(f"*{_SUFFIX}"):
            if not path.name.startswith(".") and not is_answered(path):
                path.unlink(missing_ok=True)
                _log.info("removed the socket of an instance that is gone", socket=str(path))

    def _accepted(self, listener: socket.socket, wake: socket.socket) -> Iterator[socket.socket]:
        """The connections of hooks, until ``stop``."""
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while not self._stopped.is_set():
                selector.select()
                yield from self._waiting(listener)
        # Those that have connected before the socket was removed still wait in the backlog.
        self._remove_own()
        yield from self._waiting(listener)

    def _waiting(self, listener: socket.socket) -> Iterator[socket.socket]:
        """The connections in the backlog now."""
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            # EMFILE, for instance. The connection stays in the backlog, so select() would return at once.
            except OSError as error:
                _log.warning("cannot answer a hook yet", error=str(error))
                self._stopped.wait(_AGAIN_SECONDS)
                return
            yield connection

    def _remove_own(self) -> None:
        with suppress(FileNotFoundError):
            # A later instance of the same name may have its own socket here.
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    def _start_thread(self, connection: socket.socket) -> None:
        self._under_way = [one for one in self._under_way if one.is_alive()]
        if len(self._under_way) >= MOST_AT_ONCE:
            _log.warning("too many containers start at once; their hooks ask again")
            connection.close()
            return
        # A daemon thread: one that hangs must not keep the process from ending. A hook that gets no answer
        # asks another instance.
        thread = threading.Thread(target=self._serve, args=(connection,), name="memory hook", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("cannot start a thread for a hook, which asks again", error=str(error))
            connection.close()
            return
        self._under_way.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                answer = self._answer(connection)
                if answer:
                    connection.settimeout(_WRITE_SECONDS)
                    connection.sendall(answer)
            except OSError as error:
                _log.warning("cannot answer a hook, which has closed its connection", error=str(error))

    def _answer(self, connection: socket.socket) -> bytes:
        """The answer; empty if the caller sends nothing, like an instance that checks for stale sockets."""
        # The kernel gives the credentials of the process that called connect(); the caller cannot choose
        # them.
        process, user, _group = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user not in (0, os.geteuid()):
            _log.warning("refused a hook that does not run as root", process=process, user=user)
            return no(f"user {user} may not ask: the container runtime has to run hooks as root (permanent)")
        try:
            line = _line(connection)
            if line is None:
                return b""
            start = container_start(line)
        except (MalformedCall, TimeoutError) as error:
            reason = str(error) if isinstance(error, MalformedCall) else "it did not end in time"
            _log.warning("cannot read a hook's call", process=process, reason=reason)
            return no(
                f"the plugin cannot read the hook's call, because {reason}: see the plugin's log (permanent)"
            )
        return self._decide(start)

    def _decide(self, start: ContainerStart) -> bytes:
        op_id, container = "", f"{start.namespace}/{start.pod}/{start.container}"
        names = {"id": start.container_id, "container": container}
        try:
            with operation("start", uid=start.claim_uid, device=start.cdi_device, **names) as op_id:
                self._start(start)
        except NotAnswered:
            return b""
        except DriverError as error:
            return no(str(error))
        except Exception as error:  # noqa: BLE001 - the service boundary: operation() logged the traceback
            return no(
                f"internal error: {type(error).__name__}: look for op {op_id} in the log of the kubelet"
                " plugin on this node and report it (retryable)"
            )
        return yes()


def _line(connection: socket.socket) -> bytes | None:
    """The line that the caller sends, None if it sends nothing; raises MalformedCall, TimeoutError."""
    end = time.monotonic() + _READ_SECONDS
    data = bytearray()
    while b"\n" not in data:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        # Set again for each piece, so that a slow caller cannot stretch the time of the whole line.
        connection.settimeout(left)
        piece = connection.recv(MOST_BYTES)
        if not piece:
            if data:
                raise MalformedCall("it was cut")
            return None
        data += piece
        if len(data) > MOST_BYTES:
            raise MalformedCall(f"it has more than {MOST_BYTES} bytes")
    return bytes(data.partition(b"\n")[0])


class MalformedCall(Exception):
    """The line does not describe a container; the message says what is wrong with it."""


def container_start(line: bytes) -> ContainerStart:
    """The container that a line of the hook describes; raises MalformedCall."""
    try:
        body = decode_json(line)
    except ValueError as error:
        raise MalformedCall(f"it is not JSON: {type(error).__name__}") from error
    if not isinstance(body, dict):
        raise MalformedCall("it is not a JSON object")
    if body.get("version") != PROTOCOL:
        raise MalformedCall(f"it does not have version {PROTOCOL} of the protocol")
    claim_uid, cdi_device = _text(body, "claim"), _text(body, "device")
    if not is_safe_uid(claim_uid):
        raise MalformedCall("its claim is not a UID")
    if _CDI_DEVICE.fullmatch(cdi_device) is None or not cdi_device.startswith(f"{claim_uid}-"):
        raise MalformedCall("its device is not one of its claim")
    # The state that the runtime writes to the hook's stdin (OCI runtime specification).
    state = body.get("state")
    if not isinstance(state, dict):
        raise MalformedCall("it has no state of a container")
    container_id, cgroup = _text(state, "id"), _text(body, "cgroup")
    if _CONTAINER_ID.fullmatch(container_id) is None:
        raise MalformedCall("its state has no id of a container")
    if not 0 < len(cgroup) <= _MOST_CGROUP_CHARACTERS or not cgroup.replace("\n", " ").isprintable():
        raise MalformedCall("its control group is not valid")
    namespace, pod, container = container_names(state.get("annotations"))
    return ContainerStart(claim_uid, cdi_device, container_id, cgroup, namespace, pod, container)


def container_names(annotations: Any) -> Names:
    """Namespace, pod and container from the runtime's annotations, all empty if they are not there."""
    if not isinstance(annotations, Mapping):
        return _UNKNOWN
    of_containerd = _checked(*(annotations.get(name) for name in _CONTAINERD))
    of_cri_o = _of_cri_o(annotations.get(_CRI_O))
    # A pod cannot replace the annotations that its own runtime writes. But some runtimes are set to pass on
    # those of pods, which can look like the other runtime's. If the two contradict each other, neither
    # counts.
    found = {names for names in (of_containerd, of_cri_o) if names != _UNKNOWN}
    if found:
        return found.pop() if len(found) == 1 else _UNKNOWN
    return _checked(*(annotations.get(name) for name in _KUBELET))


def _of_cri_o(name: Any) -> Names:
    parts = name.split("_") if isinstance(name, str) else []
    if len(parts) != 6 or parts[0] != "k8s":
        return _UNKNOWN
    return _checked(parts[3], parts[2], parts[1])


def _checked(namespace: Any, pod: Any, container: Any) -> Names:
    """The three names if all of them are valid names, else all empty."""
    if not (isinstance(namespace, str) and isinstance(pod, str) and isinstance(container, str)):
        return _UNKNOWN
    are_names = _LABEL.fullmatch(namespace) and _SUBDOMAIN.fullmatch(pod) and _LABEL.fullmatch(container)
    return (namespace, pod, container) if are_names else _UNKNOWN


def yes() -> bytes:
    """The answer if the container may start."""
    return b'{"ok":true}\n'


def no(message: str) -> bytes:
    """The answer if the container may not start. The message appears in the events of its pod."""
    body = {"ok": False, "message": message[:_MOST_MESSAGE_CHARACTERS]}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise MalformedCall(f"it has no {name}")
    return value
