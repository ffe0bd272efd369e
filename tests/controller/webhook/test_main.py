"""The webhook as a process: its flags, its errors and exit codes, and one review."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import urlopen

import pytest

from controller.webhook.__main__ import start
from driver.process.service import Service
from tests.controller.webhook.peer import Peer, make_pair
from tests.controller.webhook.reviewed import asked, claim, config

REPOSITORY = Path(__file__).parents[3]


def webhook(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "controller.webhook", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    process = webhook(
        f"--cert-file={pair.cert_file}", "--addr=127.0.0.1:0", GPU_DRA_KEY_FILE=str(pair.key_file)
    )
    assert process.stderr is not None
    try:
        peer = Peer(json.loads(process.stderr.readline())["port"], pair.cert_file)
        with ExitStack() as silent:
            for _ in range(40):
                silent.enter_context(socket.create_connection(("127.0.0.1", peer.port), 20))
            assert peer.review(asked(claim(config({}))))["allowed"] is False
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 0
    assert "certificate expires soon" in errors
    assert "Traceback" not in errors
    assert "did not end in time" not in errors


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (("missing.crt", "tls.key"), "missing.crt"),
        (("tls.crt", "tls.crt"), "tls.crt"),
        (("tls.key", "tls.key"), "tls.key"),
        (("tls.crt", "other/tls.key"), "other/tls.key"),
        (("locked/tls.crt", "locked/tls.key"), "without a passphrase"),
    ],
    ids=["missing", "a certificate as key", "a key as certificate", "a foreign key", "a passphrase"],
)
def test_files_that_are_no_certificate_end_it_with_one_clear_line(
    tmp_path: Path, files: tuple[str, str], named: str
) -> None:
    make_pair(tmp_path)
    make_pair(tmp_path / "other")
    make_pair(tmp_path / "locked", "-passout", "pass:x")
    cert, key = files

    process = webhook(f"--cert-file={tmp_path / cert}", f"--key-file={tmp_path / key}", "--addr=127.0.0.1:0")
    try:
        errors = process.communicate(timeout=30)[1]
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 1
    assert "Traceback" not in errors
    (line,) = errors.splitlines()
    assert named in line


class Started(Service):
    """Knows the ports of what it runs, and leaves the signals of pytest alone."""

    ports: ClassVar[dict[str, int]] = {}

    def spawn(self, name: str, run: Any, *stop: Any) -> None:
        super().spawn(name, run, *stop)
        self.ports[name] = run.__self__.port if name in ("metrics", "webhook") else 0

    def catch_signals(self) -> None:
        pass


def test_its_metrics_say_when_the_certificate_expires(tmp_path: Path) -> None:
    pair, service = make_pair(tmp_path), Started()
    addresses = {"addr": "127.0.0.1:0", "metrics_addr": "127.0.0.1:0", "health_addr": ""}
    try:
        start(service, pair.cert_file, pair.key_file, classes="", **addresses)
        with urlopen(f"http://127.0.0.1:{service.ports['metrics']}/metrics", timeout=20) as answer:
            metrics = answer.read().decode()
    finally:
        service.stop()

    [value] = re.findall(r"^gpu_dra_webhook_certificate_remaining_seconds (\S+)$", metrics, re.MULTILINE)
    assert 0 < float(value) <= 2 * 86400
