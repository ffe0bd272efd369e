"""Scenarios that want the same share a cluster, clusters run side by side, and each result is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from envtest.real.assets import ASSETS_VARIABLE, BINARIES
from envtest.real.build import DEFAULT_KUBERNETES
from tools.scenarios.catalogue import Scenario
from tools.scenarios.description import Description, Wanted
from tools.scenarios.groups import Result, WorkerDied, run_side_by_side
from tools.scenarios.page import parse_page

pytestmark = pytest.mark.timeout(240)  # two interpreters start


@pytest.fixture(autouse=True)
def _binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of Kubernetes that say nothing but their version, so that nothing is built."""
    for name in BINARIES:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho Kubernetes v{DEFAULT_KUBERNETES}.0\n")
        program.chmod(0o755)
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))


def scenario(folder: Path, name: str, script: str) -> Scenario:
    """A page of the documentation with one block, which runs without a cluster."""
    page = parse_page(folder / f"{name}.md", f"```sh\n{script}\n```\n")
    config = folder / "scenario.yaml"
    config.touch()
    description = Description(Wanted((), ""), config, ("embedded", "real"), "", long=False)
    return Scenario(name, folder / name, description, page)


def told(groups: Sequence[tuple[Scenario, ...]], results: list[Result]) -> dict[str, str]:
    """Why each failed; empty for one that ran."""
    run_side_by_side(groups, "embedded", 2, results.append)
    return {one.name: one.failure.reason if one.failure else "" for one in results}


def test_workers_tell_all_results_also_those_of_a_group_after_one_that_failed(tmp_path: Path) -> None:
    a, b, c, d = (
        scenario(tmp_path, *one) for one in (("a", "exit 3"), ("b", "true"), ("c", "true"), ("d", "true"))
    )
    failed = "it ended with 3, and 0 was expected"
    assert told([(a, b), (c,), (d,)], []) == {"a": failed, "b": "", "c": "", "d": ""}


def test_a_worker_that_dies_is_noticed(tmp_path: Path) -> None:
    groups = [(scenario(tmp_path, "a", "kill -9 $PPID"),), (scenario(tmp_path, "b", "sleep 1000"),)]
    results: list[Result] = []
    with pytest.raises(WorkerDied, match="ended with status -9"):
        told(groups, results)
    assert results == []
