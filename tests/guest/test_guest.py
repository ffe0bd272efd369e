"""What needs a kernel of its own is tested in a guest, which is started once for the tests in ``inside``."""

import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.clusters import go_programs
from tests.guest.inside.memory.built import BUILT, Built
from tests.guest.machine.run import FOLDER_IN_GUEST, run_in_guest
from tests.nvml_library.library import compile_first, compile_nvml
from tools.testbed.memory_hook import memory_hook

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).parent / "inside"
PATIENCE_SECONDS = 900


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_all_that_needs_a_kernel_of_its_own_passes_there(tmp_path: Path) -> None:
    _build(Built(tmp_path))
    command = [
        *("env", f"{BUILT}={tmp_path}"),
        *(sys.executable, "-m", "pytest", str(INSIDE), "-v", "--maxfail=3", "--durations=12", "--color=no"),
        # A process that was told to wait for what never comes ends with calls under way.
        *("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
        # Neither the plugins nor the settings of the other tests are needed, and all of it is slow there.
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", f"--confcutdir={INSIDE}"),
        *("--timeout=300", f"--junit-xml={FOLDER_IN_GUEST}/results.xml"),
    ]
    ended = run_in_guest(command, ROOT, PATIENCE_SECONDS)
    print(ended.output)  # noqa: T201 - pytest shows it with -s, and when the test fails

    assert ended.code == 0, "tests failed in the guest; see what they said above"
    suite = ET.fromstring(ended.files["results.xml"]).find("testsuite")  # noqa: S314 - of our own
    assert suite is not None
    assert int(suite.attrib["tests"]) > 0
    assert suite.attrib["skipped"] == "0", "nothing is skipped in the guest, which has all that is needed"


def _build(built: Built) -> None:
    """Build what the guest has no time for: it emulates a processor."""
    compile_nvml(built.nvml)
    compile_first(built.first)
    shutil.copy(memory_hook(), built.hook)
    shutil.copy(go_programs("container-toolkit") / built.nvidia_hook.name, built.nvidia_hook)
