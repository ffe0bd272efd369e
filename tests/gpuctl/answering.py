"""An HTTP server for tests that answers what it is told to, and nothing else."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.running import running


@contextmanager
def answering(answers: Mapping[str, str], otherwise: str = "") -> Iterator[int]:
    """The port of a server that knows these paths; to others it answers 503."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            body = (otherwise if found is None else found).encode()
            self.send_response(503 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        running(server.serve_forever, server.shutdown),
    ):
        yield server.server_port
