"""actionlint finds nothing wrong with the workflows."""

import subprocess
from pathlib import Path

from tests.clusters import go_programs

ROOT = Path(__file__).resolve().parents[2]


def test_the_workflows_are_valid() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
    command = [str(go_programs("actionlint") / "actionlint"), "-no-color", *map(str, files)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")
    assert len(files) == 2
