"""Log lines are JSON, carry the operation's id, and keep secrets to themselves."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from driver.process.log import configure, get_logger, operation
from tests.gpus import ClaimBlocked, ClaimRefused

log = get_logger("a.module")


class Log(io.StringIO):
    """A stream that reads back what was logged."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def stream() -> Iterator[Log]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    stream = Log()
    configure("debug", stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_one_json_object_with_time_level_and_module(stream: Log) -> None:
    log.info("slice written", slice="a", devices=8)
    line = stream.lines()[0]
    assert line.pop("time").endswith("Z")
    said = {"event": "slice written", "slice": "a", "devices": 8}
    assert line == {"level": "info", "module": "a.module", **said}


def test_every_line_of_an_operation_carries_its_id_and_its_claim(stream: Log) -> None:
    with operation("prepare", namespace="team", claim="train", uid="u1") as op_id:
        log.info("spec written")
    log.info("after")
    begin, inside, end, after = stream.lines()
    for line in (begin, inside, end):
        assert (line["op"], line["operation"], line["uid"]) == (op_id, "prepare", "u1")
    assert (end["event"], end["outcome"]) == ("operation ended", "ok")
    assert end["duration_ms"] >= 0
    assert "op" not in after


@pytest.mark.parametrize(
    ("error", "outcome"), [(ClaimBlocked("held"), "retryable"), (ClaimRefused("bad"), "permanent")]
)
def test_an_expected_failure_is_a_warning_without_a_traceback(
    stream: Log, error: Exception, outcome: str
) -> None:
    with pytest.raises(type(error)), operation("prepare"):
        raise error
    line = stream.lines()[-1]
    assert (line["level"], line["outcome"], line["error"]) == ("warning", outcome, str(error))
    assert "exception" not in line


def test_an_unexpected_failure_is_logged_with_its_traceback(stream: Log) -> None:
    with pytest.raises(ZeroDivisionError), operation("prepare"):
        _ = 1 // 0
    line = stream.lines()[-1]
    assert (line["level"], line["outcome"]) == ("error", "internal")
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "hunter2"},
        {"headers": {"Authorization": "Basic hunter2"}},
        {"password": ["hunter2"]},
        {"error": "401 for Bearer hunter2"},
        {"error": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodW50ZXIyIn0.hunter2"},
        {"secret": 'quote " hunter2'},
    ],
)
def test_a_secret_never_reaches_the_log(stream: Log, fields: dict[str, object]) -> None:
    log.warning("request failed", status=401, **fields)
    assert "hunter2" not in stream.getvalue()
    assert "***" in stream.getvalue()
    assert stream.lines()[0]["status"] == 401


def test_a_line_of_a_library_has_the_same_form(stream: Log) -> None:
    with operation("prepare") as op_id:
        logging.getLogger("urllib3").warning("retrying %s", "/apis")
        logging.getLogger("urllib3").info("too quiet to matter")
    line = next(line for line in stream.lines() if line["module"] == "urllib3")
    assert (line["event"], line["level"], line["op"]) == ("retrying /apis", "warning", op_id)
    assert all("quiet" not in line["event"] for line in stream.lines())


def test_a_log_that_cannot_be_written_stops_nobody(stream: Log) -> None:
    stream.close()
    log.info("nobody reads this")


def test_a_service_loads_no_package_for_colours_or_kubeconfigs_and_grpc_keeps_quiet() -> None:
    script = """
import os, sys

class Told:
    def find_spec(self, name, path, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_VERBOSITY"))

sys.meta_path.insert(0, Told())
import kubeletplugin.__main__, kubeletplugin.wiring, controller.__main__
print({"kubernetes", "rich"} & set(sys.modules))
"""
    variables = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=variables
    )

    assert done.stdout == "ERROR\nset()\n"
