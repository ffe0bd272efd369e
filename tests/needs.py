"""What a test may need of the machine beyond Python; without it the test is skipped, and the run says so."""

import os
import shutil
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

_RUN_AS_ROOT = "(run the tests as root)"
NO_DEVICE_NODES = "needs the right to make device nodes (run the tests as root)"
"""The reason of a test that finds out while it runs that it may not make device nodes."""


def has_capability(number: int) -> bool:
    """Whether this process has a capability, by its number in linux/capability.h."""
    with Path("/proc/self/status").open() as lines:
        (effective,) = [line.split()[1] for line in lines if line.startswith("CapEff")]
    return bool(int(effective, 16) & 1 << number)


def has_ipv6() -> bool:
    """Whether a process may listen at ::1."""
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def _tool(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name} (install it)")


def _capability(number: int, what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not has_capability(number), reason=f"needs {what} {_RUN_AS_ROOT}")


BUSYBOX, GCC, PROMTOOL, SETPRIV = map(_tool, ("busybox", "gcc", "promtool", "setpriv"))
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root (run the tests as root)")
DROPS = _capability(8, "rights that it can drop")
CHANGES_ROOT = _capability(18, "the right to change the root folder")
MOUNTS = _capability(21, "the right to mount")
MAKES_NODES = _capability(27, "the right to make device nodes")
IPV6 = pytest.mark.skipif(not has_ipv6(), reason="needs IPv6 (run the tests on a machine that has it)")


def summary(skipped: Iterable[pytest.TestReport]) -> str:
    """One line with the number of skipped tests for each reason; empty if none was skipped."""
    reasons: Counter[str] = Counter()
    for report in skipped:
        if isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ").removeprefix("needs ")] += 1
    parts = [f"{count} for want of {reason}" for reason, count in reasons.most_common()]
    return f"skipped: {'; '.join(parts)}" if parts else ""
