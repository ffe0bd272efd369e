"""Scenarios that want the same share a cluster, clusters run side by side, and each result is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.tools.scenarios.kubernetes_binaries import pretend_binaries
from tools.scenarios.catalogue import Scenario
from tools.scenarios.description import Description, Wanted
from tools.scenarios.groups import Result, WorkerDied, run_group, run_side_by_side
from tools.scenarios.page import parse_page


@pytest.fixture(autouse=True)
def _binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_binaries(tmp_path / "assets", monkeypatch)


def scenario(folder: Path, name: str, script: str = "true", wanted: Wanted | None = None) -> Scenario:
    """A page of the documentation with one block, which runs without a cluster."""
    page = parse_page(folder / f"{name}.md", f"```sh\n{script}\n```\n")
    wanted = wanted or Wanted((), "")
    (folder / "scenario.yaml").touch()
    description = Description(wanted, folder / "scenario.yaml", ("embedded", "real"), "", long=False)
    return Scenario(name, folder / name, description, page)


def told(results: Sequence[Result]) -> dict[str, str]:
    """Why each failed; empty for one that ran."""
    return {one.name: one.failure.reason if one.failure else "" for one in results}


def test_each_of_a_group_runs_also_after_one_that_failed(tmp_path: Path) -> None:
    results: list[Result] = []
    group = (scenario(tmp_path, "a"), scenario(tmp_path, "b", "exit 3"), scenario(tmp_path, "c"))
    run_group(group, "embedded", results.append)
    assert told(results) == {"a": "", "b": "it ended with 3, and 0 was expected", "c": ""}


def test_one_that_is_written_wrong_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    page = parse_page(tmp_path / "a.md", f"```sh\ntouch {mark}\n```\n```yaml\nin: no file\n```\n")
    one = scenario(tmp_path, "a")
    results: list[Result] = []
    run_group((Scenario("a", one.folder, one.description, page),), "embedded", results.append)
    assert told(results) == {"a": "it is written wrong"}
    assert results[0].failure is not None
    assert "a.md:4: this YAML is in none of the files" in results[0].failure.output
    assert not mark.exists()


@pytest.mark.timeout(240)  # two interpreters start
def test_workers_tell_all_results(tmp_path: Path) -> None:
    groups = [(scenario(tmp_path, name, script),) for name, script in (("a", "true"), ("b", "exit 3"))]
    groups += [(scenario(tmp_path, name),) for name in "cd"]
    results: list[Result] = []
    run_side_by_side(groups, "embedded", 2, results.append)
    assert told(results) == {"a": "", "b": "it ended with 3, and 0 was expected", "c": "", "d": ""}


@pytest.mark.timeout(240)
def test_a_worker_that_dies_is_noticed(tmp_path: Path) -> None:
    results: list[Result] = []
    with pytest.raises(WorkerDied, match="ended with status -9"):
        run_side_by_side(
            [(scenario(tmp_path, "a", "kill -9 $PPID"),), (scenario(tmp_path, "b", "sleep 1000"),)],
            "embedded",
            2,
            results.append,
        )
    assert told(results) == {}
