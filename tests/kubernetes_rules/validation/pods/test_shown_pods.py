"""Every pod that a manifest of the project holds, or that a workload in it makes, is one that may be made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubernetes_rules.pod_defaults import created_pod
from kubernetes_rules.validation.pods import pod_errors
from tests.refused_on_purpose import REFUSED

Object = dict[str, Any]

FOLDER = Path(__file__).resolve().parents[4] / "deploy"


def pods_in(file: Path) -> Iterator[Object]:
    """The pods of a manifest, and one of each workload's template."""
    for item in yaml.safe_load_all(file.read_text()):
        if (item or {}).get("kind") == "Pod":
            yield item
        template = ((item or {}).get("spec") or {}).get("template") or {}
        if "spec" in template:
            yield {**template, "metadata": {**template.get("metadata", {}), "name": item["metadata"]["name"]}}


MANIFESTS = [
    file
    for file in sorted(FOLDER.rglob("*.yaml"))
    if not file.is_relative_to(FOLDER / "chart") and [*pods_in(file)]
]
VALID = [file for file in MANIFESTS if str(file.relative_to(FOLDER.parent)) not in REFUSED]


@pytest.mark.parametrize("file", VALID, ids=lambda file: str(file.relative_to(FOLDER)))
def test_its_pods_have_no_error(file: Path) -> None:
    for pod in pods_in(file):
        metadata = {"namespace": "default", **pod["metadata"]}

        assert pod_errors(created_pod({**pod, "metadata": metadata})) == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_those_that_are_shown_for_their_mistake_have_one(name: str) -> None:
    (pod,) = pods_in(FOLDER.parent / name)
    metadata = {"namespace": "default", **pod["metadata"]}

    assert pod_errors(created_pod({**pod, "metadata": metadata})) != []


def test_there_are_pods_and_workloads_to_look_at() -> None:
    assert len(MANIFESTS) > 20
