"""Kubernetes' own answers to cases: from the oracle, or from golden vectors.

The oracle is Kubernetes' allocator, CEL and validation behind a pipe, with one JSON line for each case and
answer. Golden vectors are its answers kept as data, so that tests need no oracle.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Self

from driver.errors import ConfigError
from tools.conformance.area import Answer, Case

_VECTORS = Path(__file__).resolve().parents[2] / "tests" / "vectors"


class Oracle:
    """One running oracle; use it as a context manager. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the binary cannot be started."""
        try:
            self._process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise ConfigError(
                f"the oracle {path} cannot be started: {error.strerror}",
                "build it with `python -m envtest.real build`, which says where it lies",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stdin):
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # the remaining questions are dropped

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer, in order; questions are sent ahead while answers are read.

        Raises ConfigError when the oracle ends before it has answered.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        asked = list(cases)

        def send() -> None:
            try:
                for case in asked:
                    stdin.write(json.dumps(case) + "\n")
                stdin.flush()
            except (BrokenPipeError, ValueError):
                return  # the reading side notices, and says so

        Thread(target=send, name="oracle questions", daemon=True).start()
        for case in asked:
            line = stdout.readline()
            if not line:
                raise ConfigError(f"the oracle ended without an answer to {json.dumps(case)[:2000]}")
            yield case, json.loads(line)


def _vector_file(area: str) -> Path:
    """Where the vectors of an area lie."""
    return _VECTORS / f"{area}.jsonl.gz"


def write_vectors(area: str, answered: Iterable[tuple[Case, Answer]]) -> int:
    """Write the vectors of an area, the same bytes for the same answers; returns how many there are."""
    lines = [json.dumps({"case": case, "answer": answer}, sort_keys=True) for case, answer in answered]
    data = "".join(f"{line}\n" for line in lines).encode()
    _vector_file(area).write_bytes(gzip.compress(data, mtime=0))
    return len(lines)


def read_vectors(area: str) -> Iterator[tuple[Case, Answer]]:
    """Each case of an area with the oracle's answer."""
    with gzip.open(_vector_file(area), "rt", encoding="utf-8") as file:
        for line in file:
            vector = json.loads(line)
            yield vector["case"], vector["answer"]
