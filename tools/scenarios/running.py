"""Runs the steps of a page on a cluster, then checks that the cluster is as it was before."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.comparing import difference, matches
from tools.scenarios.page import Page, Step
from tools.scenarios.places.place import Place, session_environment
from tools.scenarios.session import Ran, Session
from tools.scenarios.traces import GONE_SECONDS, traces, wait_as_before

STEP_SECONDS = 420.0
"""How long a block may take."""
SHOWN_SECONDS = 60.0
"""How long a block is repeated until it prints what the page shows."""
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a page did not run as written: the line (from 1), its command, the reason, and the output."""

    line: int
    command: str
    reason: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How long a page ran, and why it failed; ``failure`` is None if it ran as written."""

    seconds: float
    failure: Failure | None


def run_page(page: Page, place: Place, gone_seconds: float = GONE_SECONDS) -> Outcome:
    """Run the steps of a page in one session, from the root of this checkout, then check for leftovers.

    Deleted objects have ``gone_seconds`` to disappear.
    """
    begun = time.monotonic()
    api = None if place.cluster is None else place.cluster.api
    before = None if api is None else traces(api, place.drivers)
    failure = _failed_step(page, place)
    if failure is None and api is not None and before is not None:
        left = wait_as_before(api, before, place.drivers, gone_seconds)
        if left:
            last = page.steps[-1]
            failure = Failure(last.line, last.script, "not all is as it was before", "\n".join(left))
    return Outcome(time.monotonic() - begun, failure)


def _failed_step(page: Page, place: Place) -> Failure | None:
    with tempfile.TemporaryDirectory(prefix="scenario-") as made:
        home = Path(made)
        with Session(home, PACKAGE_ROOT, session_environment(place, home)) as session:
            for step in page.steps:
                failure = run_step(step, session)
                if failure is not None:
                    return failure
    return None


def run_step(step: Step, session: Session, shown_seconds: float = SHOWN_SECONDS) -> Failure | None:
    """Run one block; None if it ended and printed as the page shows."""
    if step.until_shown:
        return _repeated(step, session, shown_seconds)
    # A block that is expected to fail would end the session, which stops at the first error.
    return _failure(step, session.run(step.script, STEP_SECONDS, apart=step.exits != 0))


def _repeated(step: Step, session: Session, shown_seconds: float) -> Failure | None:
    deadline = time.monotonic() + shown_seconds
    while True:
        failure = _failure(step, session.run(step.script, STEP_SECONDS, apart=True))
        if failure is None:
            return None
        if time.monotonic() > deadline:
            return replace(failure, reason=f"{failure.reason}, for {shown_seconds:g} s")
        time.sleep(_PAUSE_SECONDS)


def _failure(step: Step, ran: Ran) -> Failure | None:
    """What is wrong with the exit code and the output of a block."""
    if ran.exits is None:
        return Failure(step.line, step.script, f"it ran longer than {STEP_SECONDS:g} s", ran.printed)
    if ran.exits != step.exits:
        line = step.line + (ran.failed_at or 0)
        reason = f"it ended with {ran.exits}, and {step.exits} was expected"
        return Failure(line, _command(step, ran), reason, ran.printed)
    if step.shown is not None and not matches(step.shown.text, ran.printed):
        differing = difference(step.shown.text, ran.printed)
        return Failure(step.shown.line, step.script, "it printed something else than is shown", differing)
    return None


def _command(step: Step, ran: Ran) -> str:
    """The line of a block that failed, or the whole block if that is unknown."""
    lines = step.script.splitlines()
    known = ran.failed_at is not None and 0 < ran.failed_at <= len(lines)
    return lines[ran.failed_at - 1] if known and ran.failed_at else step.script
