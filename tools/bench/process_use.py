"""What a process uses of the machine, as the kernel counts it (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """The processor time in user and in kernel mode, on request with that of children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """The resident memory in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024
