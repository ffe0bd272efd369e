"""Settings for every test: a log that is kept from the terminal, and property tests without a clock."""

from __future__ import annotations

import gc
import io
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from driver.process.log import configure
from envtest.embedded.api import unforeseen
from gpuctl.demo.brisk import BRISK_ON_REAL
from tests import needs
from tests.examples import LONG
from tests.parts import LIMIT_SECONDS, Part

_MEMORY = "/dev/shm"
_ROOM_BYTES = 2 << 30

# "ci" is what the targets run with, "long" what they do with LONG=1, "fuzz" what make fuzz does. The first
# has the same examples each time: who changed something else must not meet a rare case that nobody knew of.
# The others look for such cases.
for _name, _examples in (("ci", LONG // 4), ("long", LONG), ("fuzz", 5 * LONG)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=_name == "ci",
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --part: without it, every test that is named runs."""
    parser.addoption("--part", choices=tuple(LIMIT_SECONDS), help="run one part of the tests: tests/parts.py")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what is not of the part, and keep temporary files in memory where there is room.

    Not on real clusters: MPS daemons there have a /dev/shm of their own, which would hide the node's folders.
    """
    if name := config.getoption("--part"):
        _keep_files_in_memory()
        config.pluginmanager.register(Part(name, config.rootpath))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Keep modules and tests, which stay until the end, out of garbage collections: a tenth of all time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """No collection of garbage while a test lets the stack grow to its limit.

    Garbage of any other test would be finalised there. Its finalisers have no stack left and fail, nobody can
    catch that error, and pytest blames the test that runs.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run for want of something."""
    if line := needs.summary(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


def _keep_files_in_memory() -> None:
    """Use a tmpfs for temporary files, unless TMPDIR says otherwise: tests write 100,000 small ones.

    A disk needs up to fifty times as long for that. The processes that tests start follow TMPDIR as well.
    """
    try:
        there = os.statvfs(_MEMORY)
    except OSError:
        return
    is_large = there.f_bavail * there.f_frsize >= _ROOM_BYTES
    runs_programs = not there.f_flag & os.ST_NOEXEC
    if "TMPDIR" not in os.environ and is_large and runs_programs and os.access(_MEMORY, os.W_OK):
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY


@pytest.fixture(scope="session")
def driver_launcher() -> tuple[str, ...]:
    """On real clusters the driver looks as often as it can, and leaves the scheduler its time."""
    return BRISK_ON_REAL


@pytest.fixture(autouse=True)
def _log_to_nowhere() -> None:
    """Lines that no test asks for go nowhere; a test that looks at the log configures it again."""
    configure("info", io.StringIO())


@pytest.fixture(autouse=True)
def _no_fault_of_the_embedded_cluster() -> Iterator[None]:
    """A test fails when a part of the embedded cluster met meanwhile what nobody had thought of."""
    yield
    _fail_of(unforeseen.take())


@pytest.fixture(scope="session", autouse=True)
def _no_fault_at_the_end() -> Iterator[None]:
    """So do the faults of clusters that outlive single tests."""
    yield
    _fail_of(unforeseen.take())


def _fail_of(faults: list[unforeseen.Unforeseen]) -> None:
    if faults:
        told = "\n".join(map(str, faults))
        pytest.fail(f"{len(faults)} faults of the embedded cluster itself:\n{told}", pytrace=False)
