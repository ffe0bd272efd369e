"""The processor time and memory of a process, as the kernel counts them (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """The processor time in user and kernel mode; with ``children`` also that of children that have ended."""
    # The second field is the program's name in parentheses, which may contain blanks and parentheses itself.
    # After it, utime, stime, cutime and cstime are at 11 to 14, in clock ticks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """The resident memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def private_mib(pid: int) -> float:
    """The resident memory that no other process shares, in MiB; libraries in files are shared."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def threads_and_descriptors(pid: int) -> int:
    """How many threads and open file descriptors a process has, together."""
    return sum(1 for kind in ("task", "fd") for _ in Path(f"/proc/{pid}/{kind}").iterdir())
