"""Asks the oracle: Kubernetes' own allocator, CEL and validation behind a pipe, one JSON line each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Self

from driver.errors import ConfigError

if TYPE_CHECKING:
    from tools.conformance.area import Answer, Case


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
                continue  # what was still to be asked is asked no more

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
