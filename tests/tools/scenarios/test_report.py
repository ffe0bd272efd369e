"""A line for each scenario, and below one that failed where, what was run, and what came instead."""

from __future__ import annotations

from click.testing import CliRunner

from tools.scenarios.__main__ import commands


def test_the_command_fails_for_a_name_that_there_is_not() -> None:
    done = CliRunner().invoke(commands, ["run", "none"])
    assert done.exit_code == 1
    assert "there is no scenario 'none'; name one of " in done.stdout
    assert done.stdout.endswith("0 of 1 scenarios ran as written, in 0 s\n")
