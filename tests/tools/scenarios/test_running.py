"""A page fails at the first block that does not end, or print, as it says, and is told with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.scenarios.page import parse_page
from tools.scenarios.places.place import Place
from tools.scenarios.running import Failure, run_page, run_step
from tools.scenarios.session import Session


def run(folder: Path, text: str) -> Failure | None:
    """What became of a page where there is no cluster."""
    return run_page(parse_page(Path("README.md"), text), Place(None, (), folder, {})).failure


def test_a_page_whose_blocks_do_as_they_say_runs(tmp_path: Path) -> None:
    page = "```sh\nname=x\n```\n```sh\necho is $name\n```\n```text\nis …\n```\n```sh exits=3\nexit 3\n```\n"
    assert run(tmp_path, page) is None


def test_a_block_that_fails_is_told_with_the_line_of_its_command(tmp_path: Path) -> None:
    failure = run(tmp_path, "# A\n\n```sh\necho so far\nls /there/is/none\necho more\n```\n")
    assert failure is not None
    assert (failure.line, failure.command) == (5, "ls /there/is/none")
    assert failure.reason == "it ended with 2, and 0 was expected"
    assert failure.output.startswith("so far\n")


def test_another_output_is_told_with_the_line_where_it_is_shown(tmp_path: Path) -> None:
    failure = run(tmp_path, "```sh\necho a; echo b\n```\n\nThis prints:\n\n```text\na\nc\n```\n")
    assert failure is not None
    assert (failure.line, failure.reason) == (7, "it printed something else than is shown")
    assert failure.output.splitlines() == ["  a", "- c", "+ b"]


@pytest.mark.parametrize(("seconds", "failed"), [(60.0, False), (0.0, True)])
def test_a_block_is_repeated_until_it_prints_what_is_shown(
    tmp_path: Path, seconds: float, failed: bool
) -> None:
    count = tmp_path / "count"
    script = f"echo x >> {count}\ntest $(wc -l < {count}) -ge 3\necho there"
    (step,) = parse_page(Path("README.md"), f"```sh until-shown\n{script}\n```\n```text\nthere\n```\n").steps
    with Session(tmp_path, tmp_path, {"PATH": os.environ["PATH"]}) as session:
        failure = run_step(step, session, seconds)
    assert (failure is not None) is failed
    if failure is not None:
        assert failure.reason == "it ended with 1, and 0 was expected, for 0 s"
    else:
        assert count.read_text() == "x\n" * 3
