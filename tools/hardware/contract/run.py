"""Runs the clauses of the contract, each with an NVML of its own and with a time limit for each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from driver.nvml.api import Nvml, NvmlCallFailed, NvmlTimeout
from driver.nvml.deadline import Guard, Watch
from tools.hardware.calls import NotedCalls
from tools.hardware.contract.clause import BrokenPromise, Clause, NothingToCheck
from tools.hardware.contract.events import EVENT_CLAUSES
from tools.hardware.contract.gpus import GPU_CLAUSES
from tools.hardware.contract.mig import MIG_CLAUSES
from tools.hardware.contract.sessions import SESSION_CLAUSES

CLAUSES = (*SESSION_CLAUSES, *GPU_CLAUSES, *EVENT_CLAUSES, *MIG_CLAUSES)
"""All clauses. Each needs to be alone: NVML counts the sessions of a process."""

CALL_SECONDS = 30.0
"""How long one call may take: without persistence mode it may initialise a GPU, which takes seconds."""

_WORKER = "the contract"

Outcome = Literal["kept", "broken", "hung", "nothing to check", "not run"]


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """How NVML kept a clause; ``lines`` say what was wrong, or why there was nothing to check."""

    clause: Clause
    outcome: Outcome
    lines: tuple[str, ...] = ()


def keep_clause(clause: Clause, nvml: Nvml) -> ClauseResult:
    """Test one clause in this thread, with an NVML that has no session, and end the session after it."""
    try:
        clause.test(nvml)
    except BrokenPromise as error:
        return ClauseResult(clause, "broken", error.lines)
    except NothingToCheck as error:
        return ClauseResult(clause, "nothing to check", (str(error),))
    except NvmlCallFailed as error:
        return ClauseResult(clause, "broken", (error.what,))
    finally:
        # NVML counts the sessions of a process: one that stays open would be that of the next clause, too.
        with suppress(NvmlCallFailed):
            nvml.shutdown()
    return ClauseResult(clause, "kept")


def check_contract(
    open_nvml: Callable[[], Nvml],
    clauses: Iterable[Clause] = CLAUSES,
    call_seconds: float = CALL_SECONDS,
) -> tuple[ClauseResult, ...]:
    """Test the clauses one after the other.

    Once a call hangs, the remaining clauses are not run.
    """
    guard = Guard(call_seconds)
    results: list[ClauseResult] = []
    try:
        for clause in clauses:
            has_hung = any(one.outcome == "hung" for one in results)
            results.append(
                ClauseResult(clause, "not run") if has_hung else _tested(guard, clause, open_nvml())
            )
    finally:
        guard.close()
    return tuple(results)


def _tested(guard: Guard, clause: Clause, nvml: Nvml) -> ClauseResult:
    """Test a clause in the guard's thread; the result says which call hangs, if one does."""
    noted: list[NotedCalls] = []

    def watched(watch: Watch) -> ClauseResult:
        noted.append(NotedCalls(nvml, watch))
        return keep_clause(clause, noted[0].nvml)

    try:
        return guard.run(_WORKER, watched)
    except NvmlTimeout as error:
        hanging = [str(call) for one in noted for call in one.running]
        what = f"{hanging[0]} did not return within {guard.deadline_seconds:g} s" if hanging else error.what
        return ClauseResult(clause, "hung", (what,))
