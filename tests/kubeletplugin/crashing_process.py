"""Prepares or unprepares one claim on a fake node's disk, and ends before its n-th change of that disk.

As a program it forks such a process for each line that it reads, so that only the program itself has to be
started and to import what they need; it answers each line with how its process ended.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpus import unshared_name
from tests.kubeletplugin.fake_node import FakeNode

ENDED = 70
SHARE_ID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
LIMITS = {"memoryLimits": {"string": "cgroup"}}
"""What the slices say of every device, where the node has the hook for memory."""
_LONGEST_SECONDS = 60


def work(folder: Path, operation: str, uid: str, end_before: int, machine: str, devices: list[str]) -> None:
    """Start the plugin on the disk of a node, then do the work and count the changes of the disk."""
    node = FakeNode(folder, machine, on_disk=True, binds=not (folder / "sys").is_symlink())
    hook = folder / "gpu-memory-hook"
    if hook.exists():
        node.memory_hook, node.published_attributes = hook, dict.fromkeys(devices, LIMITS)
        node.restart()
    ref = node.claim_devices("train", *devices, uid=uid)
    for result in node.api["team", "train"]["status"]["allocation"]["devices"]["results"]:
        if unshared_name(result["device"]) != result["device"]:
            result |= {"shareID": SHARE_ID, "consumedCapacity": {"shares": "1", "memory": "0"}}
    call = node.call()
    _end_before(end_before, (str(node.boot_files), str(node.cdi)))
    if operation == "prepare":
        node.preparer.prepare(ref, call)
    else:
        node.preparer.unprepare(ref, call)


def _end_before(count: int, folders: tuple[str, ...]) -> None:
    left = count

    def audit(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in ("os.rename", "os.remove")):
            return
        if isinstance(args[0], int) or not os.fspath(args[0]).startswith(folders):
            return
        left -= 1
        if left == 0:
            os._exit(ENDED)

    sys.addaudithook(audit)


def serve() -> None:
    """Fork a process for each line, and say how it ended: its exit code, or minus the signal's number.

    This process stays without threads, so that what it forks is whole.
    """
    for line in sys.stdin:
        forked = os.fork()
        if forked == 0:
            signal.alarm(_LONGEST_SECONDS)  # nobody waits for one that hangs
            folder, operation, uid, end_before, machine, devices = json.loads(line)
            work(Path(folder), operation, uid, end_before, machine, devices)
            os._exit(0)
        _, status = os.waitpid(forked, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve()
