"""Settings for every test: logs stay off the terminal, and property tests have no time limits."""

import gc
import io
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from driver.process.log import configure
from envtest.embedded.server import EmbeddedApiServer, Unforeseen
from gpuctl.demo.brisk import BRISK_ON_REAL
from tests import needs
from tests.examples import LONG
from tests.faults import NOTED
from tests.parts import LIMIT_SECONDS, Part

_MEMORY = "/dev/shm"
_ROOM_BYTES = 2 << 30

# The make targets use "ci", with LONG=1 they use "long", and make fuzz uses "fuzz". "ci" has the same
# examples each time, so that nobody meets a rare case after an unrelated change. The others look for rare
# cases.
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
    """Leave out tests of other parts, and keep temporary files in memory where there is room.

    Not on real clusters: there, MPS daemons have a /dev/shm of their own, which would hide the node's
    folders.
    """
    if config.getoption("--hypothesis-profile") is None:
        # Hypothesis draws the constants of all modules that are loaded, too, so that any change of the code
        # would change the examples of all tests. It also reads every module for that, in each worker.
        providers._get_local_constants = Constants  # noqa: SLF001 - there is no setting for it
    if name := config.getoption("--part"):
        _keep_files_in_memory()
        config.pluginmanager.register(Part(name, config.rootpath))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Keep modules and tests, which stay until the end, out of garbage collections: that saves a tenth."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Switch garbage collection off for a test that lets the stack grow to its limit.

    Garbage of other tests would be finalised there, without any stack left. Nobody can catch the error of
    such a finaliser, and pytest blames the test that runs.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run because the machine lacks something."""
    if line := needs.summary(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


def _keep_files_in_memory() -> None:
    """Use a tmpfs for temporary files unless TMPDIR is set: tests write 100,000 small files.

    On a disk that takes up to fifty times as long. The processes that tests start use TMPDIR as well.
    """
    try:
        there = os.statvfs(_MEMORY)
    except OSError:
        return
    is_large = there.f_bavail * there.f_frsize >= _ROOM_BYTES
    runs_programs = not there.f_flag & os.ST_NOEXEC
    if "TMPDIR" not in os.environ and is_large and runs_programs and os.access(_MEMORY, os.W_OK):
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    """An API server of the test's own."""
    with EmbeddedApiServer() as running:
        yield running


@pytest.fixture(scope="session")
def driver_launcher() -> tuple[str, ...]:
    """On real clusters the driver checks as often as it can without taking the scheduler's processor time."""
    return BRISK_ON_REAL


@pytest.fixture(autouse=True)
def _log_to_nowhere() -> None:
    """Drop log lines; a test that reads the log configures it again."""
    configure("info", io.StringIO())


@pytest.fixture(autouse=True)
def _no_fault_of_the_embedded_cluster() -> Iterator[None]:
    """Fail a test when a part of the embedded cluster had an unexpected error meanwhile."""
    yield
    _fail_of(NOTED.take())


@pytest.fixture(scope="session", autouse=True)
def _no_fault_at_the_end() -> Iterator[None]:
    """Fail at the end of the session for errors of clusters that outlive single tests."""
    yield
    _fail_of(NOTED.take())


def _fail_of(faults: list[Unforeseen]) -> None:
    if faults:
        listed = "\n".join(map(str, faults))
        pytest.fail(f"{len(faults)} faults of the embedded cluster itself:\n{listed}", pytrace=False)
