"""A headless Chromium that tests control with the DevTools protocol, over a pipe instead of a port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

PROGRAM = "chromium"
ANSWER_SECONDS = 30.0

_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    # The tests run as root, and as root Chromium starts only without its sandbox.
    "--no-sandbox",
    "--disable-gpu",
    # In containers /dev/shm is often too small for it.
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
)


class BrowserFailed(Exception):
    """The browser is not installed, refused a command, or did not answer."""


@contextmanager
def chromium() -> Iterator[Tab]:
    """A browser with one empty tab; all of its processes end with the block."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise BrowserFailed(f"there is no {PROGRAM}: install Debian's package of that name")
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder, _Pipe(program, Path(folder)) as pipe:
        target = pipe.call("Target.createTarget", {"url": "about:blank"})
        attached = pipe.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        tab = Tab(pipe, str(attached["sessionId"]))
        tab.begin()
        yield tab


class _Pipe:
    """The browser's process and the pipes to it: JSON messages that end with a zero byte.

    The browser reads from its descriptor 3 and writes to 4.
    """

    def __init__(self, program: str, folder: Path) -> None:
        self._answers: dict[int, Any] = {}
        self._events: list[Any] = []
        self._condition = threading.Condition()
        self._number = 0
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Copies, because a pipe may itself have the number 3 or 4, and the first dup2 would replace it.
        spare_in, spare_out = os.dup(theirs_in), os.dup(theirs_out)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT, 0o600)
        self._pid = os.posix_spawn(
            program,
            [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}"],
            {**os.environ, "HOME": str(folder)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, spare_in, 3),
                (os.POSIX_SPAWN_DUP2, spare_out, 4),
            ],
            # A process group of its own, to end all of its processes at once.
            setpgroup=0,
        )
        # The copies of this process: the reader sees the end only if nobody else has the pipe open.
        for number in (theirs_in, theirs_out, spare_in, spare_out, log):
            os.close(number)
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._reader.join()
        os.close(self._in)

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._in, 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            with self._condition:
                for one in map(json.loads, messages):
                    if "id" in one:
                        self._answers[one["id"]] = one
                    else:
                        self._events.append(one)
                self._condition.notify_all()

    def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Send a command and return its result; raises BrowserFailed."""
        with self._condition:
            self._number += 1
            number = self._number
        message = {"id": number, "method": method, "params": params}
        os.write(
            self._out, json.dumps({**message, **({"sessionId": session} if session else {})}).encode() + b"\0"
        )
        with self._condition:
            if not self._condition.wait_for(lambda: number in self._answers, ANSWER_SECONDS):
                raise BrowserFailed(f"no answer to {method} within {ANSWER_SECONDS:g} s")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserFailed(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def events(self, method: str) -> list[dict[str, Any]]:
        """All events of a kind so far."""
        with self._condition:
            return [one["params"] for one in self._events if one["method"] == method]


class Tab:
    """A tab of the browser."""

    def __init__(self, pipe: _Pipe, session: str) -> None:
        self._pipe = pipe
        self._session = session

    def begin(self) -> None:
        """Turn on the browser's events."""
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "Performance"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol to this tab."""
        return self._pipe.call(method, params, self._session)

    def open(self, url: str) -> None:
        """Open the address, and wait until the page and its script are loaded."""
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise BrowserFailed(f"{url}: {failed}")
        self.wait(lambda: self.evaluate("document.readyState") == "complete", f"{url} to load")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; waits for a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserFailed(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """The visible text of the first element of a CSS selector, empty if there is none."""
        return str(
            self.evaluate(f"(document.querySelector({json.dumps(selector)}) || {{innerText: ''}}).innerText")
        )

    def wait(self, met: Callable[[], bool], what: str, timeout_seconds: float = 30.0) -> None:
        """Wait until a condition is met; raises BrowserFailed if it is not in time."""
        until = time.monotonic() + timeout_seconds
        pause = threading.Event()
        while not met():
            if time.monotonic() > until:
                raise BrowserFailed(f"waited {timeout_seconds:g} s for {what}")
            pause.wait(0.05)

    def wait_text(self, words: str, selector: str = "body", timeout_seconds: float = 30.0) -> None:
        """Wait until the text of an element contains these words."""
        self.wait(lambda: words in self.text(selector), f"{words!r} in {selector}", timeout_seconds)

    def press(self, key: str) -> None:
        """Press and release a key: Tab, Enter, Space."""
        codes = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " ")}
        code, text = codes[key]
        common = {
            "key": " " if key == "Space" else key,
            "code": key,
            "windowsVirtualKeyCode": code,
        }
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def media(self, scheme: str) -> None:
        """Make the page prefer ``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width: int, height: int) -> None:
        """Set the size of the page in the window, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Write a screenshot as PNG; ``whole`` includes the parts below the window."""
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(made["data"]))

    def complaints(self) -> list[str]:
        """The errors in the page's console, including violations of its content security policy."""
        logged = [one["entry"] for one in self._pipe.events("Log.entryAdded")]
        thrown = [one["exceptionDetails"] for one in self._pipe.events("Runtime.exceptionThrown")]
        return [str(one["text"]) for one in logged if one["level"] == "error"] + [str(one) for one in thrown]

    def requested(self) -> list[str]:
        """The addresses of all requests so far."""
        return [str(one["request"]["url"]) for one in self._pipe.events("Network.requestWillBeSent")]

    def dialogs(self) -> list[str]:
        """The dialogs that scripts opened."""
        return [str(one["message"]) for one in self._pipe.events("Page.javascriptDialogOpening")]
