"""Ends control groups of containers by their names, also those that runc does not know.

If runc is killed while it makes a container, its control group stays, and maybe a process in it that waits
forever for the one that was killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_END_SECONDS = 10.0
_POLL_SECONDS = 0.02


def end_groups(prefix: str, root: Path = _ROOT) -> tuple[Path, ...]:
    """Kill the processes of all control groups whose names begin so, and remove the groups, in v1 and v2.

    Returns those that still had processes after ten seconds, or that this user may not remove.
    """
    deadline, pause = time.monotonic() + _END_SECONDS, threading.Event()
    while True:
        found = [
            Path(folder, name)
            for folder, names, _ in os.walk(root)
            for name in names
            if name.startswith(prefix)
        ]
        left = tuple(group for group in found if not _is_ended(group))
        if not left or time.monotonic() > deadline:
            return left
        pause.wait(_POLL_SECONDS)


def _is_ended(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        # It is busy until the kernel is done with its processes.
        with suppress(OSError):
            _kill(group)
        return False
    return True


def _kill(group: Path) -> None:
    if (group / "cgroup.kill").exists():
        # Of cgroup v2, since Linux 5.14.
        (group / "cgroup.kill").write_text("1")
        return
    for process_id in _processes(group):
        handle = os.pidfd_open(process_id)
        try:
            # The descriptor stays with one process, so its group is read after it is opened.
            if process_id in _processes(group):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _processes(group: Path) -> list[int]:
    # 0 stands for a process that this namespace of processes does not have.
    return [int(one) for one in (group / "cgroup.procs").read_text().split() if one != "0"]
