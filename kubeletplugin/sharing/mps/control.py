"""Sends commands to a running MPS control daemon: for its limits, its servers, its end.

The daemon answers nothing to most commands that worked and words to those that did not, so every limit is
read back. Amounts are read back in whole G, rounded down, from 1 GiB on; percentages with a decimal,
``100.0``; process ids are whole numbers. By these formats, the answers to a batch of commands are sorted.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from driver.errors import ClaimBlocked
from kubeletplugin.devices.host.driver_programs import DriverPrograms, ProgramHangs, Said, run_program
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.mps.folders import DaemonFolder

CONTROL = "nvidia-cuda-mps-control"

_PERCENTAGE = re.compile(r"\d+\.\d+", re.ASCII)
_AMOUNT = re.compile(r"(\d+)([GM])B?", re.ASCII)
_PID = re.compile(r"\d+", re.ASCII)
_MIB_PER_GIB = 1024


class NoDaemon(ClaimBlocked):
    """No daemon serves the pipe directory, or it ended before it answered."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to a batch by their format: percentages, amounts of memory, process ids, and words."""

    percentages: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


def sort_answers(lines: tuple[str, ...]) -> Answers:
    """Sort the lines of an answer by their format."""

    def matching(pattern: re.Pattern[str]) -> tuple[str, ...]:
        return tuple(line for line in lines if pattern.fullmatch(line))

    patterns = (_PERCENTAGE, _AMOUNT, _PID)
    rest = tuple(line for line in lines if not any(pattern.fullmatch(line) for pattern in patterns))
    return Answers(matching(_PERCENTAGE), matching(_AMOUNT), tuple(map(int, matching(_PID))), rest)


def limit_commands(daemon: MpsDaemon, server: int | None = None) -> list[str]:
    """Commands that set and read back the limits of new servers, or those of a running one."""
    # Memory limits are set by ordinal: the daemon accepts a UUID but does not apply the limit.
    percentage, pinned = "active_thread_percentage", "device_pinned_mem_limit"
    of = " " if server is None else f" {server} "
    default = "default_" if server is None else ""
    limits = [(ordinal, mib) for ordinal, mib in enumerate(daemon.pinned_memory_mib) if mib]
    return [
        f"set_{default}{percentage}{of}{daemon.active_thread_percentage}",
        *(f"set_{default}{pinned}{of}{ordinal} {mib}M" for ordinal, mib in limits),
        f"get_{default}{percentage}{of}".rstrip(),
        *(f"get_{default}{pinned}{of}{ordinal}" for ordinal, _ in limits),
    ]


def limits_fault(daemon: MpsDaemon, answers: Answers) -> str | None:
    """What is wrong with the limits that were read back; None if they are right."""
    if answers.words:
        return f"refused its limits: {' / '.join(answers.words)}"
    wanted = [mib for mib in daemon.pinned_memory_mib if mib]
    if not answers.percentages or len(answers.amounts) != len(wanted):
        return f"did not report its limits, but {[*answers.percentages, *answers.amounts]}"
    percentage = answers.percentages[-1]  # the command that sets it may have answered with it as well
    if float(percentage) != daemon.active_thread_percentage:
        asked = daemon.active_thread_percentage
        return f"has an active thread percentage of {percentage} where {asked} was set"
    for mib, amount in zip(wanted, answers.amounts, strict=True):
        if not is_amount(mib, amount):
            return f"has a pinned memory limit of {amount} where {mib}M was set"
    return None


def is_amount(mib: int, text: str) -> bool:
    """Whether an amount that was read back is this limit in MiB."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return False
    return int(match[1]) == (mib // _MIB_PER_GIB if match[2] == "G" else mib)


class Control:
    """Commands for the daemon of one folder."""

    def __init__(self, programs: DriverPrograms, folder: DaemonFolder, command_seconds: float) -> None:
        """``command_seconds`` is how long a batch of commands may take."""
        self._programs = programs
        self._folder = folder
        self._command_seconds = command_seconds

    def set_limits(self, daemon: MpsDaemon, deadline: float) -> None:
        """Set the limits of all future clients and read them back, before ``deadline`` (monotonic).

        Raises NoDaemon, ProgramHangs, or ClaimBlocked if a limit is refused or differs from what was set.
        """
        # The defaults apply to servers that start later; those that run get the limits one by one.
        defaults = self._ask([*limit_commands(daemon), "get_server_list"], deadline)
        fault = limits_fault(daemon, defaults)
        if fault is not None:
            raise self._wrong(daemon, fault)
        for server in defaults.pids:
            # A server that has ended meanwhile refuses them, and does not matter any more.
            fault = limits_fault(daemon, self._ask(limit_commands(daemon, server), deadline))
            if fault is not None and server in self._ask(["get_server_list"], deadline).pids:
                raise self._wrong(daemon, f"{fault} (server {server})")

    def quit(self, seconds: int, timeout_seconds: float) -> None:
        """Make the daemon quit, and its clients after this many seconds at the latest; raises as above."""
        self._run([f"quit -t {seconds}"], timeout_seconds)

    def _ask(self, commands: list[str], deadline: float) -> Answers:
        left = max(0.0, deadline - time.monotonic())
        return sort_answers(self._run(commands, min(left, self._command_seconds)).lines)

    def _run(self, commands: list[str], timeout_seconds: float) -> Said:
        try:
            said = run_program(
                self._programs.find(CONTROL),
                (),
                environment=self._folder.environment(),
                said="".join(f"{command}\n" for command in commands),
                timeout_seconds=timeout_seconds,
            )
        except ProgramHangs as error:
            raise ProgramHangs(
                f"the MPS daemon {self._folder.path.name} does not answer: {error.what}", error.way_out
            ) from error
        if said.code != 0:
            raise NoDaemon(f"no MPS daemon answers in {self._folder.pipes}: {said.words}", "it is started")
        return said

    def _wrong(self, daemon: MpsDaemon, fault: str) -> ClaimBlocked:
        return ClaimBlocked(
            f"the MPS daemon {daemon.name} {fault}",
            f"it is tried again; see {self._folder.logs}, and check whether the GPU supports this limit",
        )
