"""The area of HTTP requests: written cases, random ones, and the embedded API server that answers them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from tools.conformance.api.cases.applying import applying_cases
from tools.conformance.api.cases.asking import asking_cases
from tools.conformance.api.cases.creating import creating_cases
from tools.conformance.api.cases.deleting import deleting_cases
from tools.conformance.api.cases.kinds import kinds_cases
from tools.conformance.api.cases.patching import patching_cases
from tools.conformance.api.cases.random import random_case
from tools.conformance.api.cases.reading import reading_cases
from tools.conformance.api.cases.speaking import speaking_cases
from tools.conformance.api.left_out import differences
from tools.conformance.api.servers import EmbeddedServer, Players, RealServer
from tools.conformance.area import Answer, Area, Case

_TABLES = (
    creating_cases,
    patching_cases,
    applying_cases,
    deleting_cases,
    reading_cases,
    speaking_cases,
    asking_cases,
    kinds_cases,
)
_SHOWN = 6


@cache
def written_cases() -> tuple[Case, ...]:
    """All cases of the tables."""
    return tuple(case for table in _TABLES for case in table())


def differing(answered: Iterable[tuple[Case, Answer]]) -> Iterator[tuple[Case, list[str]]]:
    """The cases that the embedded API server answers otherwise, each with its differences."""
    for case, answer, own in replayed(answered):
        if found := differences(case, answer, own):
            yield case, found


def replayed(answered: Iterable[tuple[Case, Answer]]) -> Iterator[tuple[Case, Answer, Answer]]:
    """The cases with their answers and those of the embedded API server."""
    asked = list(answered)
    with EmbeddedServer() as players:
        ours = players.ask(case for case, _ in asked)
        for (case, answer), (_, own) in zip(asked, ours, strict=True):
            yield case, answer, own


@cache
def _embedded() -> Players:
    """The embedded API server of this process, for cases that come one by one."""
    return EmbeddedServer().__enter__()


def _difference(case: Case, answer: Answer) -> str | None:
    [(_, own)] = _embedded().ask([case])
    found = differences(case, answer, own)
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return f"{case['name']}:\n    " + "\n    ".join([*found[:_SHOWN], *more]) if found else None


AREA = Area("api", written_cases, random_case, _difference, start=RealServer)
