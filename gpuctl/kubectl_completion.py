"""Answers kubectl, which completes ``kubectl gpu`` by calling ``kubectl_complete-gpu``.

kubectl gives the words after ``kubectl gpu``, the unfinished one last. It reads one value a line, with a
tab before its description, and in the last line ``:`` with a sum of Cobra's ShellCompDirectives.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from gpuctl.__main__ import commands
from gpuctl.completion.command import VARIABLE

_NO_FILES = 4
"""ShellCompDirectiveNoFileComp: if nothing is offered, the shell does not offer files either."""
_FILES = 0
"""ShellCompDirectiveDefault: if nothing is offered, the shell offers files."""


def main() -> None:
    """Print what can complete the last argument."""
    *before, unfinished = sys.argv[1:] or [""]
    for line in answer(before, unfinished):
        click.echo(line)


def answer(before: list[str], unfinished: str) -> list[str]:
    """The lines for kubectl."""
    items = ShellComplete(commands, {}, "kubectl gpu", VARIABLE).get_completions(before, unfinished)
    # click marks what the shell shall complete itself, files and folders, with another type.
    values = [item for item in items if item.type == "plain"]
    described = (
        f"{item.value}\t{' '.join(item.help.split())}" if item.help else item.value for item in values
    )
    return [*described, f":{_NO_FILES if len(values) == len(items) else _FILES}"]
