"""Commands to nvidia-cuda-mps-control and its answers, as lines of JSON for tests.

The first line says whether the rest was ``recorded`` from a real daemon or is ``documented`` somewhere. Each
other line is one run of the program:

    {"transcript": 1, "origin": "recorded", "source": "...", "driver": "580.65.06"}
    {"options": ["-d"], "environment": {"CUDA_VISIBLE_DEVICES": "$GPU0"}, "commands": [], "code": 0,
     "lines": [], "files": {"control": "srw-rw-rw-"}}
    {"options": [], "environment": {}, "commands": ["get_server_list"], "code": 0, "lines": ["$PID"]}

``$GPU0`` and so on stand for the UUIDs of GPUs, ``$PID`` for any process id, since both differ from node to
node. The variables of the pipe and log directories are left out. ``lines`` is null if the answer is unknown.
``files`` are the files of the pipe directory after a start, with their modes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

_VERSION = 1
Origin = Literal["recorded", "documented"]
PID = "$PID"

_PID = re.compile(r"\d+", re.ASCII)
_ANY_PID = "1000001"


class Malformed(ValueError):
    """A file is not a transcript; the message names the line."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the program: its options, its environment, its commands, and its answer."""

    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    code: int = 0
    lines: tuple[str, ...] | None = None
    files: Mapping[str, str] | None = None

    def is_same_question(self, other: Run) -> bool:
        """Whether the program got the same options and commands."""
        asked, others = (self.options, self.commands), (other.options, other.commands)
        return asked == others and dict(self.environment) == dict(other.environment)

    def fits(self, other: Run) -> bool:
        """Whether two runs with the same question agree in everything that both know."""
        lines = self.lines is None or other.lines is None or self.lines == other.lines
        files = self.files is None or other.files is None or dict(self.files) == dict(other.files)
        return self.code == other.code and lines and files


@dataclass(frozen=True, slots=True)
class Transcript:
    """Runs in their order, all against one daemon, and where they come from.

    ``driver`` is the version of the NVIDIA driver, empty where the source names none.
    """

    origin: Origin
    source: str
    driver: str
    runs: tuple[Run, ...]


def read_transcript(path: Path) -> Transcript:
    """Read a file; raises Malformed or OSError."""
    first, *others = path.read_text().splitlines() or [""]
    head = _object(path, 1, first)
    if head.get("transcript") != _VERSION or head.get("origin") not in get_args(Origin):
        raise Malformed(f"{path}, line 1: not the head of a transcript of version {_VERSION}")
    runs = []
    for number, line in enumerate(others, start=2):
        document = _object(path, number, line)
        try:
            run = Run(**document)
        except TypeError as error:
            raise Malformed(f"{path}, line {number}: {error}") from error
        lines = None if run.lines is None else tuple(run.lines)
        runs.append(replace(run, options=tuple(run.options), commands=tuple(run.commands), lines=lines))
    return Transcript(head["origin"], str(head.get("source", "")), str(head.get("driver", "")), tuple(runs))


def write_transcript(transcript: Transcript) -> str:
    """The text of a file."""
    head = {
        "transcript": _VERSION,
        **{name: getattr(transcript, name) for name in ("origin", "source", "driver")},
    }
    return "".join(f"{json.dumps(one)}\n" for one in (head, *map(asdict, transcript.runs)))


def named(lines: Iterable[str], gpus: Sequence[str]) -> tuple[str, ...]:
    """Answers with placeholders for what differs from node to node."""
    return tuple(PID if _PID.fullmatch(line) else _replaced(line, gpus) for line in lines)


def filled(text: str, gpus: Sequence[str]) -> str:
    """A text with the node's own UUIDs and some process id in place of placeholders."""
    for index, uuid in enumerate(gpus):
        text = text.replace(f"$GPU{index}", uuid)
    return text.replace(PID, _ANY_PID)


def _replaced(line: str, gpus: Sequence[str]) -> str:
    for index, uuid in enumerate(gpus):
        line = line.replace(uuid, f"$GPU{index}")
    return line


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise Malformed(f"{path}, line {number}: {error}") from error
    if not isinstance(document, dict):
        raise Malformed(f"{path}, line {number}: no object")
    return document
