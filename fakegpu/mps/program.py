"""nvidia-cuda-mps-control of a fake machine: starts the daemon, or sends it commands from stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fakegpu.mps.client import PRIVILEGED, Connection, DaemonGone


def main(arguments: Sequence[str]) -> int:
    """Run as ``python -m fakegpu.mps.program MACHINE ROOT PROGRAM [OPTION...]``; returns the exit code."""
    flag, _, program, *options = arguments
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # noqa: S108 - as the real one
    if not options:
        return _commands(pipes)
    # Commands are frequent and need nothing of this module, which takes long to import.
    from fakegpu.mps.daemon import start_daemon

    return start_daemon(flag, options, pipes, Path(program).absolute().parent)


def _commands(pipes: Path) -> int:
    """Send each line of stdin to the daemon and print its answer; returns 1 if the daemon is gone."""
    try:
        connection = _connect(pipes)
    except DaemonGone:
        _say("Cannot find MPS control daemon process")
        return 1
    try:
        for text in sys.stdin:
            if text.strip():
                answer = connection.ask({"command": text.strip()})["answer"]
                if answer:
                    _say(answer)
    except DaemonGone:
        return 1
    finally:
        connection.close()
    return 0


def _connect(pipes: Path) -> Connection:
    # A user who may not connect to the privileged socket, or does not see it, can only query.
    try:
        return Connection(pipes, PRIVILEGED)
    except DaemonGone:
        return Connection(pipes)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
