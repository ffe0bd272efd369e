"""Plays gpu-memory-hook, the program on the host that asks the kubelet plugin whether a container may run."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

VERSION = 1
_AGAIN_SECONDS = 0.1
_MOST_BYTES = 64 * 1024
_NAMES_PREFIX = "io.kubernetes."


class HookFailed(Exception):
    """The container must not run; the message is what the program writes to stderr."""


def play_memory_hook(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> None:
    """Return once a plugin has said yes; raises HookFailed.

    ``options`` are those of the program, by their names. ``proc_cgroup`` is the text of /proc/PID/cgroup.
    """
    fault = _fault(Path(options["sockets"]), _line(options, state, proc_cgroup), float(options["seconds"]))
    if fault:
        raise HookFailed(f"gpu.nvidia.com does not let this container start: {' '.join(fault.split())}")


def _line(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> bytes:
    annotations = {
        name: value for name, value in state["annotations"].items() if name.startswith(_NAMES_PREFIX)
    }
    asked = {
        "version": VERSION,
        "claim": options["claim"],
        "device": options["device"],
        "state": {**state, "annotations": annotations},
        "cgroup": proc_cgroup,
    }
    return json.dumps(asked).encode() + b"\n"


def _fault(folder: Path, line: bytes, seconds: float) -> str:
    """Why the container must not run; empty where it may."""
    deadline = time.monotonic() + seconds
    while True:
        sockets = _newest_first(folder)
        for index, path in enumerate(sockets):
            left = deadline - time.monotonic()
            answer = _answer(path, line, left / (len(sockets) - index))
            if answer is not None:
                return "" if answer["ok"] is True else str(answer.get("message") or "it does not say why")
        if time.monotonic() + _AGAIN_SECONDS >= deadline:
            return (
                f"the kubelet plugin, which would hold it to its share of GPU memory, did not answer within "
                f"{seconds:g} s at {folder}: look at the gpu.nvidia.com kubelet plugin of this node"
            )
        time.sleep(_AGAIN_SECONDS)


def _newest_first(folder: Path) -> list[Path]:
    """The sockets of the plugin's instances."""
    found = []
    with suppress(OSError):
        for path in folder.glob("[!.]*.sock"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def _answer(path: Path, line: bytes, seconds: float) -> Mapping[str, Any] | None:
    """What one instance answers; None where it does not, or what it says is no answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(seconds, 0.001))
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
    return answer if isinstance(answer, dict) and isinstance(answer.get("ok"), bool) else None
