"""The webhook as a process: its flags, its errors and exit codes, and one review."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.clusters import ServingCertificate
from tests.controller.webhook.peer import Peer, make_pair
from tests.controller.webhook.reviewed import asked, claim, config
from tests.gpus import ConfigError

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


def test_it_serves_until_it_is_stopped_and_tells_of_a_certificate_that_expires(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    addresses = ("--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")
    process = webhook(f"--cert-file={pair.cert_file}", *addresses, GPU_DRA_KEY_FILE=str(pair.key_file))
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        said = {line["event"]: line for line in map(json.loads, islice(lines, 3))}
        with urlopen(f"http://127.0.0.1:{said['serving metrics']['port']}/metrics", timeout=20) as answer:
            metrics = answer.read().decode()
        [port] = [line["port"] for event, line in said.items() if "port" in line and "metrics" not in event]
        peer = Peer(port, pair.cert_file)
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
    assert "Traceback" not in errors
    assert "did not end in time" not in errors
    assert said["certificate expires soon"]["days"] == 1
    [value] = re.findall(r"^gpu_dra_webhook_certificate_remaining_seconds (\S+)$", metrics, re.MULTILINE)
    assert 0 < float(value) <= 2 * 86400


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
def test_files_that_are_no_certificate_are_named_in_one_clear_line(
    tmp_path: Path, files: tuple[str, str], named: str
) -> None:
    make_pair(tmp_path)
    make_pair(tmp_path / "other")
    make_pair(tmp_path / "locked", "-passout", "pass:x")

    with pytest.raises(ConfigError) as refused:
        ServingCertificate(*(tmp_path / name for name in files))

    assert named in str(refused.value)
    assert "\n" not in str(refused.value)
