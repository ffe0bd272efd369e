"""Calls a gRPC method of the kubelet plugin at its Unix socket. Each call has a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.experimental

_OPTIONS = (
    # With the library's common connections, a call would be told of the failure of an earlier one, for as
    # long as the library waits before it connects again.
    ("grpc.use_local_subchannel_pool", 1),
    # The thread that iterates waits in the kernel. Otherwise each stream has a thread more, and wakes up ten
    # times a second.
    (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
)


class CallFailed(Exception):
    """The call ended with another status than OK; ``code`` is its name."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class GrpcCall:
    """A call of ``method``, a full name like ``/service/Method``, with one request. It begins at once.

    Iterating gives the answers, serialised too, and raises CallFailed unless the status is OK. It fails with
    ``DEADLINE_EXCEEDED`` after ``timeout_seconds``, with ``CANCELLED`` after ``cancel``, and with
    ``UNAVAILABLE`` if the connection breaks or cannot be made.
    """

    def __init__(self, path: Path, method: str, request: bytes, timeout_seconds: float | None = None) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", _OPTIONS)
        answers: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(method)
        self._answers: Any = answers(request, timeout=timeout_seconds)

    def cancel(self) -> None:
        """End the call, from any thread."""
        self._answers.cancel()

    def __iter__(self) -> Iterator[bytes]:
        """The answers; to be called once."""
        try:
            yield from self._answers
        except grpc.RpcError:
            raise CallFailed(self._answers.code().name) from None
        finally:
            self._channel.close()
