"""The plugin's parts in a process of their own, forked from this one, which can be killed at any moment.

What the kubelet and the API server would tell it comes as orders, one line of JSON each.
"""

import json
import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_SECONDS = 60.0


class PluginProcess:
    """One instance."""

    def __init__(self, instance: str, begin: Callable[[str], Callable[[dict[str, Any]], Any]]) -> None:
        """``begin`` builds the plugin in the new process, and returns what does an order."""
        ours, theirs = socket.socketpair()
        self.process_id = os.fork()
        if self.process_id == 0:
            ours.close()
            _serve(theirs, instance, begin)
        theirs.close()
        ours.settimeout(_SECONDS)
        self._orders = ours.makefile("rw")
        self._socket = ours
        self._answer()

    def order(self, what: str, **values: Any) -> Any:
        """Have it do something; what it answers. Raises AssertionError with the plugin's words for a no."""
        self._orders.write(json.dumps({"what": what, **values}) + "\n")
        self._orders.flush()
        return self._answer()

    def kill(self) -> None:
        """Kill it wherever it is."""
        with suppress(ProcessLookupError):
            os.kill(self.process_id, signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """Have it end in order."""
        self.order("stop")
        self._wait()

    def _wait(self) -> None:
        os.waitpid(self.process_id, 0)
        self._orders.close()
        self._socket.close()

    def _answer(self) -> Any:
        line = self._orders.readline()
        assert line, "the plugin has ended"
        answer = json.loads(line)
        assert "wrong" not in answer, answer["wrong"]
        return answer["value"]


def _serve(
    orders: socket.socket, instance: str, begin: Callable[[str], Callable[[dict[str, Any]], Any]]
) -> None:
    """Do orders until ``stop``, then end this process without a word to whatever it was forked from."""
    code = 70
    try:
        file = orders.makefile("rw")
        do = begin(instance)
        _say(file, {"value": None})
        for line in file:
            order = json.loads(line)
            try:
                answer = {"value": do(order)}
            except Exception as error:  # noqa: BLE001 - the other side judges it
                answer = {"wrong": f"{type(error).__name__}: {error}"}
            _say(file, answer)
            if order["what"] == "stop":
                code = 0
                break
    except BaseException:  # noqa: BLE001 - nothing may go on as the process that this was forked from
        traceback.print_exc()
    finally:
        os._exit(code)


def _say(file: Any, answer: dict[str, Any]) -> None:
    file.write(json.dumps(answer) + "\n")
    file.flush()
