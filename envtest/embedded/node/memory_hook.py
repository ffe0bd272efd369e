"""Plays gpu-memory-hook, the program on the host that asks the kubelet plugin whether a container may run."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

VERSION = 1
_AGAIN_SECONDS = 0.1
_MOST_BYTES = 64 * 1024


class HookFailed(Exception):
    """The container must not run; the message is what the program writes to stderr."""


def play_memory_hook(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> None:
    """Return once a plugin has said yes; raises HookFailed.

    ``options`` are those of the program, by their names. ``proc_cgroup`` is the text of /proc/PID/cgroup.
    """
    asked = {
        "version": VERSION,
        "claim": options["claim"],
        "device": options["device"],
        "state": state,
        "cgroup": proc_cgroup,
    }
    folder, seconds = Path(options["sockets"]), float(options["seconds"])
    line = json.dumps(asked).encode() + b"\n"
    deadline = time.monotonic() + seconds
    while True:
        for path in _newest_first(folder):
            answer = _answer(path, line, deadline)
            if answer is not None:
                if answer.get("ok") is not True:
                    raise HookFailed(str(answer.get("message") or "the plugin gave no reason"))
                return
        if time.monotonic() + _AGAIN_SECONDS >= deadline:
            raise HookFailed(f"no kubelet plugin answered at {folder} within {seconds:g} s")
        time.sleep(_AGAIN_SECONDS)


def _newest_first(folder: Path) -> Iterator[Path]:
    """The sockets of the plugin's instances."""
    found = []
    with suppress(OSError):
        for path in folder.glob("*.sock"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
    return (path for _, path in sorted(found, reverse=True))


def _answer(path: Path, line: bytes, deadline: float) -> Mapping[str, Any] | None:
    """What one instance answers; None where it does not, or what it says is no answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        received = b""
        with suppress(OSError):
            connection.connect(str(path))
            connection.sendall(line)
            while not received.endswith(b"\n") and len(received) < _MOST_BYTES:
                part = connection.recv(_MOST_BYTES)
                if not part:
                    break
                received += part
    try:
        answer = json.loads(received)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
