"""A plugin's socket for gpu-memory-hook, as far as tests of the embedded runtime need one."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Object = dict[str, Any]
YES: Object = {"ok": True}


class AnsweringSocket:
    """Answers each line with what ``answer`` says of it; ``asked`` are the lines so far."""

    def __init__(self, path: Path, answer: Callable[[Object], Object | bytes] = lambda _asked: YES) -> None:
        self.asked: list[Object] = []
        self._answer = answer
        path.parent.mkdir(exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="hook socket", daemon=True)
        self._path = path

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(20)
        self._path.unlink()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # On a busy machine the hook may have given up before it is heard, or before it is answered.
            with connection, connection.makefile("rb") as lines, suppress(ConnectionError):
                line = lines.readline()
                if not line:
                    continue
                asked = json.loads(line)
                self.asked.append(asked)
                answer = self._answer(asked)
                connection.sendall(
                    answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n"
                )
