"""``gpuctl status --watch`` on a terminal shows GPUs with holders and health, and draws what changes."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuctl.status.live_picture import live_picture
from tests.clusters import EmbeddedApiServer, Object, views_of
from tests.eventually import WAIT_SECONDS
from tests.gpuctl.fleet.published import FIRST, SECOND, XID, claim, devices, published
from tests.gpuctl.status.situations import SLICES
from tests.gpuctl.status.test_command import HEEDING


def drawn(slices: list[Object], *claims: Object, width: int = 100, height: int = 40) -> list[str]:
    return live_picture(views_of(slices, claims), width, height, "", ()).plain.splitlines()


def test_each_gpu_has_a_line_with_its_holders_while_all_fit(tmp_path: Path) -> None:
    lines = drawn(
        published(tmp_path),
        claim("tuning", f"{FIRST}-mig-3g-40gb-4", pods=("tune-0",)),
        claim("train", SECOND),
    )

    assert lines[0] == "1 node, 8 GPUs: 2 held (1 whole, 1 partition), 6 free, 19 % taken, none sick"
    assert lines[1].startswith("node-a  NVIDIA H100 80GB HBM3, driver 580.95.05")
    assert lines[2] == f"    0 {'·' * 12}{'▓' * 12}  50 %  team/tuning (pod tune-0): mig 3g.40gb"
    assert lines[3] == f"    1 {'█' * 24} 100 %  team/train: whole"
    assert lines[4].startswith(f"    2 {'·' * 24}   0 %  1 x shared, mps")


def test_nodes_that_do_not_fit_are_counted_and_sick_ones_come_first(tmp_path: Path) -> None:
    slices: list[Object] = []
    for number in range(30):
        slices += published(tmp_path, f"node-{number:02}")
    for one in devices(slices[-2:], SECOND):
        one["taints"] = [XID]

    lines = drawn(slices, claim("train", SECOND, node="node-20"), height=20)

    assert len(lines) == 20
    assert " ".join(lines[1].split()) == (
        "node-29 ·!······ 0 of 8 held NVIDIA H100 80GB HBM3 xid=79:NoSchedule"
    )
    assert lines[2].startswith("node-00")
    assert lines[16] == "and 15 nodes more: 120 GPUs, 1 held, 0 sick"


def test_no_line_is_wider_than_the_screen_and_none_is_below_it(tmp_path: Path) -> None:
    slices = published(tmp_path)

    for width, height in ((20, 5), (40, 12), (80, 24), (200, 60)):
        lines = drawn(slices, claim("train", SECOND), width=width, height=height)
        assert max(map(len, lines)) <= width
        assert len(lines) <= height


class Terminal:
    """A gpuctl on a terminal of its own, and what it has written."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor, self.written = process, descriptor, ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def until(self, words: str) -> str:
        """Wait until the words are written; what was written till then."""
        until = time.monotonic() + WAIT_SECONDS
        while words not in self.written:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no {words!r} in {self.written[-2000:]!r}"
            self.written += os.read(self._descriptor, 65536).decode(errors="replace")
        found, self.written = self.written, ""
        return found


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
    command = [sys.executable, "-c", HEEDING, *arguments]
    # What a shell exported when it started says nothing of the terminal as it is.
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "24"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)


def test_it_draws_what_changes_follows_the_size_and_ends_cleanly(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        stored = [server.create(SLICES, one) for one in published(tmp_path)]
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))
        with terminal("status", "--watch", "--kubeconfig", kubeconfig) as screen:
            first = screen.until("none sick")
            (tainted,) = [json.loads(json.dumps(one)) for one in stored if devices([one], SECOND)]
            devices([tainted], SECOND)[0]["taints"] = [XID]
            server.replace(f"{SLICES}/{tainted['metadata']['name']}", tainted)
            screen.until("xid=79:NoSchedule")
            screen.resize(60, 8)
            small = screen.until("0 of 8 held")
            lists = server.count("list", "resourceslices")
            screen.process.send_signal(signal.SIGINT)
            last = screen.until("\x1b[?1049l")
            code = screen.process.wait(WAIT_SECONDS)

    assert "\x1b[?1049h" in first
    assert "sick" in small
    assert "Traceback" not in last
    assert code == 130
    assert lists == 2  # the first picture and the watch's own: nothing was asked again
