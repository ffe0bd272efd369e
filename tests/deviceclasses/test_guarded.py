"""No selector of ours fails for a device that says little: one node must not stop scheduling on the others.

The scheduler gives up on a pod, for every node, when a selector has no answer for a device of any of them.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml

from kubernetes_rules.cel.selector import SelectorInvalid
from tests.clusters import SelectorDevice, compile_selector
from tests.tools.docs.site.code_blocks import blocks
from tools.docs.site.places import ROOT

DRIVER = "gpu.nvidia.com"
TYPES = ("gpu", "mig", "shared", "vfio", "vgpu")
AS_THEY_COME = ("deploy/examples/translate/old/", "deploy/scenarios/from-nvidia-driver/")
"""Claims that were written for other drivers, as people bring them."""

CAPACITIES = {name: {"value": "80Gi"} for name in ("memory", "multiprocessors")}
BARE = [
    SelectorDevice(DRIVER, {}, {}),
    SelectorDevice(DRIVER, {}, CAPACITIES),
    SelectorDevice("nic.example.com", {}, {}),
    *(SelectorDevice(DRIVER, {"type": {"string": kind}}, {}) for kind in TYPES),
]


def selectors(part: Any) -> Iterator[str]:
    """The CEL expressions of all selectors in an object."""
    if isinstance(part, dict):
        cel = part.get("cel")
        if isinstance(cel, dict) and isinstance(cel.get("expression"), str):
            yield cel["expression"]
        for value in part.values():
            yield from selectors(value)
    elif isinstance(part, list):
        for value in part:
            yield from selectors(value)


def shown() -> dict[str, list[str]]:
    """The selectors that we ship or show, by the files."""
    found: dict[str, list[str]] = {}
    for folder in ("deviceclasses", "deploy"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            name = path.relative_to(ROOT).as_posix()
            if "/templates/" in name or name.startswith(AS_THEY_COME):
                continue
            for document in yaml.safe_load_all(path.read_text()):
                found.setdefault(name, []).extend(selectors(document))
    for block in blocks():
        if block.language == "yaml" and not block.page.startswith(AS_THEY_COME):
            for document in block.documents():
                found.setdefault(str(block), []).extend(selectors(document))
    return {name: expressions for name, expressions in found.items() if expressions}


def test_a_selector_has_an_answer_for_a_device_that_says_little() -> None:
    files = shown()
    assert len(files) > 40
    for expression in dict.fromkeys(one for expressions in files.values() for one in expressions):
        with suppress(SelectorInvalid):  # a mistake that a page shows: the API server refuses it
            selector = compile_selector(expression)
            for device in BARE:
                selector.matches(device)
