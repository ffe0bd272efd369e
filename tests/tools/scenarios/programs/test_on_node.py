"""scenario-on runs a node's own programs, and gpuctl finds the node's plugin there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.programs import MACHINES_VARIABLE

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the program; the node has one of its own, which says what it was called with."""
    program = tmp_path / "gpus" / "driver" / "usr" / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$GPU_DRA_PLUGINS_DIR" "$@"\nexit 7\n')
    program.chmod(0o755)
    machines = tmp_path / "machines.json"
    known = {"nvml": "fake:t4", "folder": str(tmp_path / "gpus"), "plugins_dir": "/node/plugins"}
    machines.write_text(json.dumps({"node-0": known}))

    def started(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {MACHINES_VARIABLE: str(machines), "PYTHONPATH": str(PACKAGE_ROOT)}
        command = [sys.executable, "-m", "tools.scenarios.programs", "scenario-on", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    return started


def test_the_command_is_the_nodes_own_and_its_exit_code_is_kept(run: Run) -> None:
    done = run("node-0", "nvidia-smi", "-i", "0", "--help")

    assert (done.returncode, done.stdout) == (7, "/node/plugins -i 0 --help\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("node-7", "nvidia-smi"), "there is no node node-7: name one of node-0"),
        (("node-0", "no-such-program"), "there is no program no-such-program on node-0"),
        (("node-0",), "Missing argument"),
    ],
)
def test_what_cannot_be_run_is_said(run: Run, words: tuple[str, ...], told: str) -> None:
    done = run(*words)

    assert done.returncode == 2
    assert told in done.stderr
