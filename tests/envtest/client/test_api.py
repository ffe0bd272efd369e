"""The client of the API server says in its own words that there is no answer."""

import socket
import threading

import pytest

from envtest.client.errors import ApiUnreachable
from tests.clusters import ApiClient


def test_an_answer_that_ends_in_its_middle_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def die_while_answering() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"items": [')

        thread = threading.Thread(target=die_while_answering)
        thread.start()
        with pytest.raises(ApiUnreachable, match="GET /api/v1/pods"):
            ApiClient(f"http://127.0.0.1:{server.getsockname()[1]}", None, "").get("/api/v1/pods")
        thread.join()
