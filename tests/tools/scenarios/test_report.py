"""A line for each scenario, and below one that failed where, what was run, and what came instead."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.__main__ import Report, commands
from tools.scenarios.groups import Result
from tools.scenarios.running import Failure

README = str(PACKAGE_ROOT / "deploy" / "scenarios" / "x" / "README.md")


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def report(said: io.StringIO) -> Report:
    return Report(Console(file=said, width=40))


def test_one_that_ran_is_a_line(report: Report, said: io.StringIO) -> None:
    report.show(Result("x", README, 2.34, 7.0, None))
    assert said.getvalue().split() == ["ok", "x", "2.3", "s", "after", "7.0", "s", "for", "its", "cluster"]
    assert report.failed == 0


def test_one_that_failed_is_told_with_what_a_reader_needs(report: Report, said: io.StringIO) -> None:
    report.show(Result("x", README, 2.0, 0.0, Failure(12, "ls [a]\npwd\n", "it printed more", "- a\n+ b")))
    lines = said.getvalue().splitlines()
    assert lines[0].split() == ["FAILED", "x", "2.0", "s"]
    assert lines[1:] == [
        "  deploy/scenarios/x/README.md:12: it printed more",
        "    $ ls [a]",
        "    $ pwd",
        "    - a",
        "    + b",
    ]
    assert report.failed == 1


def test_the_end_says_how_many_ran(report: Report, said: io.StringIO) -> None:
    report.show(Result("x", README, 2.0, 0.0, None))
    report.show(Result("y", README, 2.0, 0.0, Failure(1, "", "no", "\n".join(map(str, range(100))))))
    report.end(4.2)
    assert "    and 40 more lines" in said.getvalue().splitlines()
    assert said.getvalue().splitlines()[-1] == "1 of 2 scenarios ran as written, in 4 s"


def test_one_that_is_not_for_a_kind_of_cluster_says_why(report: Report, said: io.StringIO) -> None:
    report.skip("x", "embedded", "it has no policies")
    assert said.getvalue().split(maxsplit=2) == ["-", "x", "not on embedded: it has no policies\n"]


def test_the_command_lists_all() -> None:
    done = CliRunner().invoke(commands, ["list"])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("two-pods-one-claim ")]
    assert line.split() == ["two-pods-one-claim", "short", "embedded+real:", "hgx-h100"]


def test_the_command_fails_for_a_name_that_there_is_not() -> None:
    done = CliRunner().invoke(commands, ["run", "none"])
    assert done.exit_code == 1
    assert "there is no scenario 'none'; name one of " in done.stdout
    assert done.stdout.endswith("0 of 1 scenarios ran as written, in 0 s\n")
