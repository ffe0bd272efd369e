"""Runs the commands of ``commands.txt`` one after the other against a cluster, and collects the answers."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.testbed.kubectl.comparing import Answer, compared, unchanging

FOLDER = Path(__file__).parent
ANSWERS = FOLDER / "answers.txt"
"""What kubectl of the default version answers on the real cluster."""
_OBJECTS = FOLDER / "objects"
_UNTIL = "until "
_COMMAND_SECONDS = 60.0
_SETTLE_SECONDS, _ALIKE_ROUNDS, _PAUSE_SECONDS = 10.0, 4, 0.3
"""How long a cluster may take until a repeated command is answered as expected, or alike so many times."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of the list. ``is_repeated`` is whether its answer takes time to become what it should be."""

    line: str
    is_repeated: bool = False


def commands(path: Path = FOLDER / "commands.txt") -> list[Command]:
    """The commands of the list, in their order."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [Command(line.removeprefix(_UNTIL), line.startswith(_UNTIL)) for line in lines]


def manifests(
    names: Sequence[str] = ("settings.yaml", "kinds.yaml", "talker.yaml", "web.yaml", "job.yaml"),
) -> list[dict[str, Any]]:
    """Objects of every kind that the embedded cluster serves, of files of ``objects/``."""
    return [one for name in names for one in yaml.safe_load_all((_OBJECTS / name).read_text())]


def answers(
    kubectl: Path, kubeconfig: Path, listed: Sequence[Command], expected: Sequence[Answer] = ()
) -> Iterator[Answer]:
    """The answers to the commands, run one after the other.

    A repeated command is run until its answer is the expected one, by its place in the list. Without
    expected answers it is run until it is answered alike several times.
    """
    with tempfile.TemporaryDirectory(prefix="kubectl-") as home:
        config = _named_alike(kubeconfig, Path(home, "config"))
        for index, command in enumerate(listed):
            wanted = expected[index] if expected else None
            yield _answered(command, wanted, lambda line: _run(kubectl, line, config))


def _named_alike(kubeconfig: Path, copy: Path) -> Path:
    """A copy of a kubeconfig whose cluster, user and context have the same names on all clusters."""
    content = yaml.safe_load(kubeconfig.read_text())
    for part in ("clusters", "users", "contexts"):
        content[part][0]["name"] = "trial"
    content["contexts"][0]["context"] = {"cluster": "trial", "user": "trial"}
    content["current-context"] = "trial"
    copy.write_text(yaml.safe_dump(content))
    return copy


def _answered(command: Command, wanted: Answer | None, run: Callable[[str], Answer]) -> Answer:
    answer = run(command.line)
    if not command.is_repeated:
        return answer
    deadline, alike = time.monotonic() + _SETTLE_SECONDS, 1
    while time.monotonic() < deadline:
        if alike == _ALIKE_ROUNDS if wanted is None else compared(answer) == compared(wanted):
            break
        time.sleep(_PAUSE_SECONDS)
        former, answer = answer, run(command.line)
        alike = alike + 1 if answer == former else 1
    return answer


def _run(kubectl: Path, line: str, config: Path) -> Answer:
    words = shlex.split(line)
    environment = {"PATH": os.environ["PATH"], "HOME": str(config.parent), "KUBECONFIG": str(config)}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    done = subprocess.run(
        [kubectl, *words],
        cwd=_OBJECTS,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    return Answer(line, unchanging(done.stdout), done.returncode)
