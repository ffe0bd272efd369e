"""Runs the clauses of the contract, each with an NVML of its own and with a time limit for each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from driver.nvml.api import Nvml, NvmlCallFailed, NvmlTimeout
from driver.nvml.deadline import Guard, Watch
from tools.hardware.calls import NotedCalls
from tools.hardware.contract.clause import BrokenPromise, Clause, NothingToCheck
from tools.hardware.contract.events import EVENT_CLAUSES
from tools.hardware.contract.gpus import GPU_CLAUSES
from tools.hardware.contract.mig import MIG_CLAUSES
from tools.hardware.contract.sessions import SESSION_CLAUSES

CLAUSES: tuple[Clause, ...] = tuple(
    sorted(
        (*SESSION_CLAUSES, *GPU_CLAUSES, *EVENT_CLAUSES, *MIG_CLAUSES), key=lambda clause: not clause.alone
    )
)
"""All clauses; those first that need to be alone."""

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
    *,
    may_be_alone: bool = True,
) -> tuple[ClauseResult, ...]:
    """Test the clauses one after the other.

    Once a call hangs, the remaining clauses are not run. ``may_be_alone`` is false if another session of this
    process is or may be open; then the clauses that need to be alone are not run.
    """
    guard = Guard(call_seconds)
    results: list[ClauseResult] = []
    kept_open: Nvml | None = None
    hung: ClauseResult | None = None
    try:
        for clause in clauses:
            if hung is not None or (clause.alone and not may_be_alone):
                results.append(ClauseResult(clause, "not run"))
                continue
            if not clause.alone and kept_open is None:
                kept_open = open_nvml()
                hung = _keep_gpus_ready(guard, clause, kept_open)
            results.append(hung or _in_thread(guard, clause, open_nvml(), partial(keep_clause, clause)))
            hung = results[-1] if results[-1].outcome == "hung" else None
        if kept_open is not None and hung is None:
            _end(guard, kept_open)
    finally:
        guard.close()
    return tuple(results)


def _in_thread(guard: Guard, clause: Clause, nvml: Nvml, job: Callable[[Nvml], ClauseResult]) -> ClauseResult:
    """Do a job in the guard's thread; the result says which call hangs, if one does."""
    noted: list[NotedCalls] = []

    def watched(watch: Watch) -> ClauseResult:
        noted.append(NotedCalls(nvml, watch))
        return job(noted[0].nvml)

    try:
        return guard.run(_WORKER, watched)
    except NvmlTimeout as error:
        hanging = [str(call) for one in noted for call in one.running]
        what = f"{hanging[0]} did not return within {guard.deadline_seconds:g} s" if hanging else error.what
        return ClauseResult(clause, "hung", (what,))


def _keep_gpus_ready(guard: Guard, clause: Clause, nvml: Nvml) -> ClauseResult | None:
    """Open a session with all GPUs, which stays open; returns a result for the clause if a call hangs.

    Without persistence mode the kernel takes each GPU down with the last session, and every clause would wait
    for all of them to come up again.
    """

    def job(noted: Nvml) -> ClauseResult:
        # What is wrong with a GPU is the matter of the clauses.
        with suppress(NvmlCallFailed):
            noted.init()
            for index in range(noted.device_count()):
                with suppress(NvmlCallFailed):
                    noted.device_by_index(index)
        return ClauseResult(clause, "kept")

    result = _in_thread(guard, clause, nvml, job)
    return result if result.outcome == "hung" else None


def _end(guard: Guard, nvml: Nvml) -> None:
    with suppress(NvmlCallFailed):
        guard.run(_WORKER, lambda watch: watch("shutdown", nvml.shutdown))
