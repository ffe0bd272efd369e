"""The driver's processes import no more than they use."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTED = """
import ast, importlib, sys
package = sys.argv[1]
importlib.import_module(package + ".__main__")
wiring = importlib.import_module(package + ".wiring")
# The controller's wiring imports the parts within its functions.
for node in ast.walk(ast.parse(open(wiring.__file__).read())):
    if isinstance(node, ast.ImportFrom):
        module = importlib.import_module(node.module)
        for name in node.names:
            if not hasattr(module, name.name):
                importlib.import_module(f"{node.module}.{name.name}")
later = sys.modules["driver.process.lean"].LATER
print(*(name for name in sys.modules if name not in later or sys.modules[name].__spec__))
"""
UNUSED = {
    "kubernetes",
    "jsonschema",
    "jinja2",
    "starlette",
    "uvicorn",
    "rich.console",
    "typing_extensions",
    "zipfile",
}
# re2 is loaded with the first CEL expression, NVML and its fake when one of them was chosen.
UNUSED |= {"re2", "kubernetes_rules.cel", "pynvml", "fakegpu.machine", "importlib.metadata", "asyncio.events"}


@pytest.mark.parametrize(
    ("package", "unused"),
    [
        ("kubeletplugin", {*UNUSED, "controller", "asyncio", "grpc.aio", "h2"}),
        ("controller", {*UNUSED, "kubeletplugin", "asyncio", "grpc"}),
    ],
)
def test_a_process_does_not_import_what_it_never_uses(package: str, unused: set[str]) -> None:
    assert set(run(IMPORTED, package).split()) & unused == set()


USED_LATER = """
import driver.process.lean
import grpc, urllib3
import asyncio
assert asyncio.__spec__ is None
async def answer():
    await asyncio.sleep(0)
    return 5
assert asyncio.run(answer()) == 5
import asyncio.events
assert asyncio.events.new_event_loop
from urllib3 import http2
assert http2.inject_into_urllib3
assert grpc.aio.server
assert not hasattr(asyncio, "nothing")
print("good")
"""


def test_a_module_that_is_left_out_runs_when_it_is_used() -> None:
    assert run(USED_LATER) == "good\n"


def run(script: str, *arguments: str) -> str:
    """What a new interpreter prints."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
