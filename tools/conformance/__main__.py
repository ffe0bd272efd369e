"""The command: ``run`` searches random cases for differences, ``record`` writes the golden vectors."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from driver.errors import DriverError
from tools.conformance import pods
from tools.conformance.allocation import area as allocation_area
from tools.conformance.api import area as api_area
from tools.conformance.area import RECORDED, Area, Case, version_of
from tools.conformance.cel import area as cel_area
from tools.conformance.nodes import mig_area, passthrough_area, shares_area, vgpu_area
from tools.conformance.of_1_38 import explained
from tools.conformance.oracle import Oracle, write_vectors
from tools.conformance.validation import area as validation_area
from tools.conformance.victims import area as victims_area

_SHOWN = 5
# Cases sent to the oracle at a time.
_BATCH = 200
_ORACLE = click.option(
    "--oracle",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The oracle's binary; `python -m envtest.real build` makes it.",
)


AREAS: tuple[Area, ...] = (
    allocation_area.AREA,
    cel_area.AREA,
    validation_area.AREA,
    pods.AREA,
    mig_area.AREA,
    shares_area.AREA,
    passthrough_area.AREA,
    vgpu_area.AREA,
    victims_area.AREA,
    api_area.AREA,
)


def cases_of(area: Area, seed: int) -> Iterator[Case]:
    """The written cases, then random ones without end, if there are any; the same for the same seed."""
    yield from area.written()
    if area.written_only:
        return
    rng = random.Random(f"{area.name} {seed}")  # noqa: S311 - no secret
    while True:
        yield area.random(rng)


@click.group()
def main() -> None:
    """Compare allocation, CEL, validation and the API server with Kubernetes' own."""


@main.command()
@_ORACLE
@click.option("--cases", "count", default=10_000, show_default=True, help="How many cases, per area.")
@click.option("--seed", default=1, show_default=True, help="Another seed, other cases.")
@click.option("--area", "only", multiple=True, type=click.Choice([area.name for area in AREAS]))
@click.option("--kubernetes", default=RECORDED, show_default=True, help="The version of the oracle.")
def run(oracle: Path, count: int, seed: int, only: tuple[str, ...], kubernetes: str) -> None:
    """Look for cases that are answered differently; exits 1 if there is one.

    What is known to be different in the version is counted by itself.
    """
    different = 0
    for area in AREAS:
        if only and area.name not in only:
            continue
        left = itertools.islice(cases_of(area, seed), count)
        found, known = 0, Counter[str]()
        with (area.start or Oracle)(oracle) as asked:
            while batch := [{**one, "kubernetes": kubernetes} for one in itertools.islice(left, _BATCH)]:
                for case, answer in asked.ask(batch):
                    difference = area.difference(case, answer)
                    if difference is None:
                        continue
                    change = explained(area.name, case, difference) if version_of(case) >= (1, 38) else None
                    if change is not None:
                        known[change] += 1
                        continue
                    found += 1
                    if found <= _SHOWN:
                        print(f"{area.name}: {difference}\n  {json.dumps(case, sort_keys=True)}")
        asked_for = min(count, len(area.written())) if area.written_only else count
        print(f"{area.name}: {asked_for} cases with seed {seed}, {found} different")
        for change, times in known.items():
            print(f"  {kubernetes}, {times} times: {change}")
        different += found
    if different:
        sys.exit(1)


@main.command()
@_ORACLE
@click.option("--area", "only", multiple=True, type=click.Choice([area.name for area in AREAS]))
def record(oracle: Path, only: tuple[str, ...]) -> None:
    """Write tests/vectors/ anew from the oracle's answers."""
    for area in AREAS:
        if only and area.name not in only:
            continue
        wanted = list(itertools.islice(cases_of(area, 0), len(area.written()) + area.recorded))
        with (area.start or Oracle)(oracle) as asked:
            print(f"{area.name}: {write_vectors(area.name, asked.ask(wanted))} vectors")


if __name__ == "__main__":
    try:
        main()
    except DriverError as error:
        sys.exit(str(error))
