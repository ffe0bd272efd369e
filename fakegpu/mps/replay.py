"""Replaces nvidia-cuda-mps-control by the answers of a transcript, for code that runs the program.

The runs of the transcript answer in their order; runs that no question matches are skipped. A question that
matches none of the remaining runs is an error, so that no test goes on with answers to something else.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fakegpu.mps.transcript import filled, read_transcript

UNKNOWN_QUESTION = 70
"""Exit code if no remaining run matches; the real program has no such code."""


def install_replay(program: Path, transcript: Path, gpus: Sequence[str]) -> None:
    """Put a script at the program's path that answers from the transcript; ``gpus`` are $GPU0 and so on."""
    position = program.with_suffix(".replayed")
    position.write_text("0")
    words = [sys.executable, "-P", "-m", "fakegpu.mps.replay", str(transcript), str(position)]
    words.append(json.dumps(list(gpus)))
    packages = shlex.quote(str(Path(__file__).parents[2]))
    program.write_text(f'#!/bin/sh\nexport PYTHONPATH={packages}\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)


def main(arguments: Sequence[str]) -> int:
    """Answer as the next run with these options and commands did; returns its exit code."""
    transcript, position, gpus, *options = arguments
    uuids = json.loads(gpus)
    commands = () if options else tuple(line.strip() for line in sys.stdin if line.strip())
    runs = read_transcript(Path(transcript)).runs
    # The number of the next run is in a file: each call is a process of its own.
    start = int(Path(position).read_text())
    for number, run in enumerate(runs[start:], start=start):
        if (run.options, tuple(filled(one, uuids) for one in run.commands)) == (tuple(options), commands):
            Path(position).write_text(str(number + 1))
            sys.stdout.write("".join(f"{filled(line, uuids)}\n" for line in run.lines or ()))
            return run.code
    sys.stderr.write(f"{transcript} has no run with {options} {list(commands)} any more\n")
    return UNKNOWN_QUESTION


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
