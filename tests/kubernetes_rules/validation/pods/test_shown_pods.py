"""Every pod that a manifest of the project holds, or that a workload in it makes, is one that may be made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envtest.client.api import objects_in
from kubernetes_rules.defaults import created_pod
from kubernetes_rules.validation.pods import pod_errors
from tests.refused_on_purpose import REFUSED

Object = dict[str, Any]

FOLDER = Path(__file__).resolve().parents[4] / "deploy"


def pods_in(file: Path) -> Iterator[Object]:
    """The pods of a manifest, and one of each workload's template."""
    for item in objects_in(file):
        if item.get("kind") == "Pod":
            yield item
        template = (item.get("spec") or {}).get("template") or {}
        if "spec" in template:
            yield {**template, "metadata": {**template.get("metadata", {}), "name": item["metadata"]["name"]}}


MANIFESTS = [
    file
    for file in sorted(FOLDER.rglob("*.yaml"))
    if not file.is_relative_to(FOLDER / "chart") and [*pods_in(file)]
]
VALID = [file for file in MANIFESTS if str(file.relative_to(FOLDER.parent)) not in REFUSED]


def test_no_shown_pod_has_an_error() -> None:
    for file in VALID:
        for pod in pods_in(file):
            metadata = {"namespace": "default", **pod["metadata"]}

            assert pod_errors(created_pod({**pod, "metadata": metadata})) == [], file


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_those_that_are_shown_for_their_mistake_have_one(name: str) -> None:
    (pod,) = pods_in(FOLDER.parent / name)
    metadata = {"namespace": "default", **pod["metadata"]}

    assert pod_errors(created_pod({**pod, "metadata": metadata})) != []


def test_there_are_pods_and_workloads_to_look_at() -> None:
    assert len(MANIFESTS) > 20
