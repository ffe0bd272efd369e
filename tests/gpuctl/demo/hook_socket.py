"""A plugin's socket for gpu-memory-hook, as far as tests of the embedded runtime need one."""

import json
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.clusters import Object

YES: Object = {"ok": True}


class AnsweringSocket(socketserver.UnixStreamServer):
    """Answers each line with what ``answer`` says of it; ``asked`` are the lines so far."""

    def __init__(self, path: Path, answer: Callable[[Object], Object | bytes] = lambda _asked: YES) -> None:
        asked: list[Object] = []

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                # On a busy machine the hook may have given up before it is heard, or before it is answered.
                with suppress(ConnectionError):
                    if line := self.rfile.readline():
                        asked.append(json.loads(line))
                        told = answer(asked[-1])
                        self.wfile.write(
                            told if isinstance(told, bytes) else json.dumps(told).encode() + b"\n"
                        )

        path.parent.mkdir(exist_ok=True)
        super().__init__(str(path), Answer)
        self.asked, self._path = asked, path
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(20)
        self._path.unlink()
