"""Records what a real MPS control daemon answers to the questions of a transcript.

    python -m fakegpu.mps.record QUESTIONS --driver 580.65.06 --gpu GPU-8a3c… > recorded.jsonl

It needs a GPU that no process uses, and ends the daemon that it starts. The test
``tests/fakegpu/mps/test_transcripts.py`` compares the fake daemon with what was recorded.
"""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fakegpu.mps.transcript import Run, Transcript, filled, named, read_transcript, write_transcript

_RUN_SECONDS = 30.0


def record(
    program: Path,
    questions: Transcript,
    gpus: Sequence[str],
    driver: str,
    environment: Mapping[str, str] = os.environ,
) -> Transcript:
    """Ask a daemon the questions of a transcript, with its files in a temporary folder.

    ``environment`` is that of the program. Raises OSError, and SubprocessError if a run does not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        pipes, logs = Path(folder) / "pipe", Path(folder) / "log"
        for one in (pipes, logs):
            one.mkdir()
        own = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        own = {**environment, **own}
        try:
            runs = tuple(_asked(program, run, gpus, own) for run in questions.runs)
        finally:
            _run(program, Run(commands=("quit -t 0",)), gpus, own)
    return Transcript("recorded", f"{program} with the questions of: {questions.source}", driver, runs)


def _asked(program: Path, run: Run, gpus: Sequence[str], own: Mapping[str, str]) -> Run:
    done = _run(program, run, gpus, own)
    lines = named(filter(None, map(str.strip, done.stdout.splitlines())), gpus)
    files = None
    if run.options:
        pipes = Path(own["CUDA_MPS_PIPE_DIRECTORY"])
        files = {path.name: stat.filemode(path.lstat().st_mode) for path in sorted(pipes.iterdir())}
    return replace(run, code=done.returncode, lines=lines, files=files)


def _run(
    program: Path, run: Run, gpus: Sequence[str], own: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    asked = {name: filled(value, gpus) for name, value in run.environment.items()}
    # Not a pipe: a daemon in the background may keep it open, and reading would not end.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            [program, *run.options],
            input="".join(f"{filled(command, gpus)}\n" for command in run.commands),
            stdout=output, stderr=output, text=True, check=False, timeout=_RUN_SECONDS,
            env={**own, **asked},
        )  # fmt: skip
        output.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, output.read())


def main(arguments: Sequence[str]) -> int:
    """Record and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fakegpu.mps.record", description=__doc__)
    parser.add_argument("questions", type=Path, help="a transcript whose questions are asked")
    parser.add_argument("--program", type=Path, default=Path("/usr/bin/nvidia-cuda-mps-control"))
    parser.add_argument("--driver", required=True, help="the version of the NVIDIA driver")
    parser.add_argument("--gpu", action="append", required=True, help="the UUID of $GPU0, then of $GPU1, ...")
    options = parser.parse_args(arguments)
    questions = read_transcript(options.questions)
    sys.stdout.write(write_transcript(record(options.program, questions, options.gpu, options.driver)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
