"""The command line is as people know it from kubectl, whichever name it is called by."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuctl.__main__ import COMMANDS
from gpuctl.cli.output import INTERRUPTED_EXIT_CODE
from tests.clusters import commands
from tests.gpuctl.cli.kubeconfigs import kubeconfig
from tests.gpus import DriverError

CALLED_AS = "import sys; sys.argv[0] = {name!r}; from gpuctl.__main__ import main; main()"


def every_command() -> Iterator[tuple[str, ...]]:
    """The words of each command, those of groups included."""
    context = click.Context(commands)
    for name in COMMANDS:
        found = commands.get_command(context, name)
        yield (name,)
        if isinstance(found, click.Group):
            yield from ((name, below) for below in found.list_commands(context))


def called_as(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CALLED_AS.format(name=name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), *every_command()], ids=lambda words: " ".join(words) or "gpuctl")
def test_h_is_help_and_no_sentence_of_it_is_cut(words: tuple[str, ...]) -> None:
    for width in ("80", "120"):
        short = CliRunner().invoke(commands, [*words, "-h"], env={"COLUMNS": width})
        long = CliRunner().invoke(commands, [*words, "--help"], env={"COLUMNS": width})

        assert short.exit_code == 0
        assert short.output == long.output
        below = short.output.splitlines()[1:]  # the first line names the arguments, several as NAME...
        assert [line for line in below if line.endswith("...")] == []


@pytest.mark.parametrize(
    "words",
    [words for words in every_command() if words != ("demo",)],  # which needs nothing, and starts a cluster
    ids=" ".join,
)
def test_a_command_without_arguments_and_without_a_cluster_says_what_it_needs(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    nowhere = {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}

    told = CliRunner().invoke(commands, words, env=nowhere)

    assert isinstance(told.exception, SystemExit | DriverError | None), "main tells of these in a sentence"
    assert told.output.strip() or str(told.exception)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("stauts", "There is no command stauts: did you mean status?"),
        ("xyz", "There is no command xyz: `gpuctl --help` lists them."),
        ("room", "There is no command room: `gpuctl explain` says whose end would make room"),
    ],
)
def test_a_command_that_is_none_is_answered_with_one_that_is(typed: str, told: str) -> None:
    done = CliRunner().invoke(commands, [typed, "x"], prog_name="gpuctl")

    assert done.exit_code == 2
    assert told in done.output


def test_the_help_fits_on_a_screen() -> None:
    told = CliRunner().invoke(commands, ["--help"], env={"COLUMNS": "80"}).output

    assert len(told.splitlines()) <= 26
    assert "probe" not in told


def test_below_kubectl_it_says_so() -> None:
    assert "Usage: kubectl gpu status" in called_as("/usr/bin/kubectl-gpu", "status", "-h").stdout


def test_a_cluster_that_does_not_answer_is_one_line_for_people(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", here=None)
    command = [sys.executable, "-m", "gpuctl", "status", "--kubeconfig", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gpuctl: the API server cannot be reached: Connection refused;"
        " check the server of the kubeconfig, or --context\n"
    )


def test_ctrl_c_is_told_from_a_failure_by_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuctl.plan.command.emit", pressed)

    assert CliRunner().invoke(commands, ["plan", "--machine", "t4"]).exit_code == INTERRUPTED_EXIT_CODE
