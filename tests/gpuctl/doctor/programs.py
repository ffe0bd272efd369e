"""A kubectl for tests: it runs gpuctl on this machine in place of a pod, and notes how it was called."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
# A path with a space is no interpreter for the kernel, so a shell starts it.
_PROGRAM = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import json, os, subprocess, sys
from pathlib import Path
Path({calls!r}).open("a").write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[sys.argv.index("--") + 1 :]
assert words[0] == "gpuctl"
environment = {{**os.environ, **{environment!r}}}
sys.exit(subprocess.run([*{gpuctl!r}, *words[1:]], cwd={root!r}, env=environment).returncode)
"""


class FakeKubectl:
    """Put ``folder`` first on the PATH. The pod's environment is ``environment``."""

    def __init__(self, folder: Path, environment: dict[str, str], gpuctl: Sequence[str] = ()) -> None:
        self.folder = folder
        self._calls = folder / "calls"
        folder.mkdir(exist_ok=True)
        program = folder / "kubectl"
        program.write_text(
            _PROGRAM.format(
                python=sys.executable,
                calls=str(self._calls),
                gpuctl=list(gpuctl or (sys.executable, "-m", "gpuctl")),
                root=str(ROOT),
                environment=environment,
            )
        )
        program.chmod(0o755)

    @property
    def calls(self) -> list[Any]:
        """The arguments of each call."""
        return [json.loads(line) for line in self._calls.read_text().splitlines()]
