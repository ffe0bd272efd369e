"""Keeps killed processes from ending, as a hanging kernel driver does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TRACER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
with open(sys.argv[1]) as pids:
    while True:
        for pid in pids:
            assert libc.ptrace(0x4206, int(pid), 0, 0) == 0, ctypes.get_errno()  # PTRACE_SEIZE
        pids.close()
        pids = open(sys.argv[1])
"""


@contextmanager
def tracing(pids: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that attaches to the processes whose ids are written into ``pids``, and ignores them.

    The kernel reports the end of a traced process to its tracer first. This one never asks for it, so the
    parent does not get the end either.
    """
    os.mkfifo(pids)
    with subprocess.Popen([sys.executable, "-c", _TRACER, str(pids)]) as started:
        yield started
        started.kill()
