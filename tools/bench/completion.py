"""Measures how long a TAB takes, compared with an interpreter that imports only the libraries for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from envtest.embedded.server import EmbeddedApiServer
from tools.bench.table import Row, Spread, exit_status, lines

ROUNDS = 20
PODS = 200
_GPUCTL = "import sys; sys.argv[0] = 'gpuctl'; from gpuctl.__main__ import main; main()"
_FLOORS = {
    "command": "import click.shell_completion",
    "value": "import click.shell_completion, yaml, http.client",
}
TABS = (
    ("the name of a command", "gpuctl st", "command", 1.5),
    ("a machine", "gpuctl plan --machine h", "command", 2.5),
    ("a pod", "gpuctl explain pod ", "value", 2.0),
    ("a node", "gpuctl top ", "value", 2.0),
)
"""What is completed, the line so far, the key in _FLOORS to compare with, and the limit of the ratio."""


def measure() -> list[Row]:
    """A row for each kind of value; the two sides of a ratio take turns."""
    with EmbeddedApiServer() as server, tempfile.TemporaryDirectory() as folder:
        spec = {"containers": [{"name": "main", "image": "x"}]}
        for number in range(PODS):
            path = "/api/v1/namespaces/default/pods"
            server.create(path, {"metadata": {"name": f"pod-{number}"}, "spec": spec})
        server.create("/api/v1/nodes", {"metadata": {"name": "node-a"}})
        kubeconfig = str(server.write_kubeconfig(Path(folder) / "config"))
        return [_row(what, line, floor, limit, kubeconfig) for what, line, floor, limit in TABS]


def _row(what: str, line: str, floor: str, limit: float, kubeconfig: str) -> Row:
    # The shell's completion script runs the program with these variables, and click answers with values.
    typed = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    environment = {**os.environ, "KUBECONFIG": kubeconfig, "_GPUCTL_COMPLETE": "bash_complete", **typed}
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(_seconds(_FLOORS[floor], environment))
        ours.append(_seconds(_GPUCTL, environment))
    return Row(f"TAB for {what}", Spread.of_ratios(ours, theirs), limit)


def _seconds(script: str, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> int:
    """Print a table; returns the exit code, 1 if a limit is not met."""
    rows = measure()
    print("\n".join(lines(rows, "times the floor")))
    return exit_status(rows)


if __name__ == "__main__":
    sys.exit(main())
