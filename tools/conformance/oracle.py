"""Kubernetes' own answers to cases: from the oracle, or from golden vectors.

The oracle is a Go program with Kubernetes' allocator, CEL and validation. It reads a case and writes its
answer as lines of JSON. Golden vectors are its answers in files, so that tests need no oracle.
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
        """Start it. Raises ConfigError if that fails."""
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
            # close() flushes cases that were not sent yet; nobody reads them any more.
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer, in order. Raises ConfigError if the oracle ends too early."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        asked = list(cases)

        def send() -> None:
            try:
                for case in asked:
                    stdin.write(json.dumps(case) + "\n")
                stdin.flush()
            # The pipe is broken or closed: the reader below finds no answer and reports that.
            except (BrokenPipeError, ValueError):
                return

        # A thread, because the pipes have small buffers: if both sides only wrote, both would block.
        Thread(target=send, name="oracle questions", daemon=True).start()
        for case in asked:
            line = stdout.readline()
            if not line:
                raise ConfigError(f"the oracle ended without an answer to {json.dumps(case)[:2000]}")
            yield case, json.loads(line)


def _vector_file(area: str) -> Path:
    """The file with the vectors of an area."""
    return _VECTORS / f"{area}.jsonl.gz"


def write_vectors(area: str, answered: Iterable[tuple[Case, Answer]]) -> int:
    """Write the vectors of an area; returns their number. The same answers give the same bytes."""
    lines = [json.dumps({"case": case, "answer": answer}, sort_keys=True) for case, answer in answered]
    data = "".join(f"{line}\n" for line in lines).encode()
    # Without the time in gzip's header, which would change the file each time.
    _vector_file(area).write_bytes(gzip.compress(data, mtime=0))
    return len(lines)


def read_vectors(area: str) -> Iterator[tuple[Case, Answer]]:
    """Each case of an area with the oracle's answer."""
    with gzip.open(_vector_file(area), "rt", encoding="utf-8") as file:
        for line in file:
            vector = json.loads(line)
            yield vector["case"], vector["answer"]
