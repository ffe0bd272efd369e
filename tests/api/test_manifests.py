"""The manifests of ``deploy/`` are the chart as helm renders it, and kustomize makes the same of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest.client.api import APPLY, FIELD_MANAGER
from envtest.real.api_server import RealApiServer
from envtest.real.assets import find_assets
from tools.chart.values import opt_in_toggles
from tools.testbed.chart import (
    COMPONENTS,
    DEPLOY,
    NAMESPACE,
    rendered,
    rendered_text,
    stale_manifests,
)

Object = dict[str, Any]
Build = Callable[..., list[Object]]


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name; what has names of its own in a list is in the order of these names."""
    return {(one["kind"], one["metadata"]["name"]): sorted_by_name(one) for one in objects}


def sorted_by_name(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted_by_name(one) for key, one in value.items()}
    if isinstance(value, list):
        items = [sorted_by_name(one) for one in value]
        named = all(isinstance(one, dict) and "name" in one for one in items)
        return sorted(items, key=lambda one: str(one["name"])) if named else items
    return value


@pytest.fixture
def build(kubernetes: str, tmp_path: Path) -> Build:
    """What kustomize makes of the base with some components."""
    kubectl = find_assets(kubernetes).binary("kubectl")

    def built(*components: str, of: str = "base") -> list[Object]:
        copied = tmp_path / "kustomize"
        if not copied.exists():
            copied.symlink_to(DEPLOY / "kustomize")
        overlay = DEPLOY / "kustomize" / of
        if components:
            overlay = tmp_path / "overlay"
            overlay.mkdir()
            listed = [f"../kustomize/components/{name}" for name in components]
            own = {"resources": ["../kustomize/base"], "components": listed}
            (overlay / "kustomization.yaml").write_text(yaml.safe_dump(own))
        done = subprocess.run(
            [kubectl, "kustomize", str(overlay)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return [one for one in yaml.safe_load_all(done.stdout) if one]

    return built


def test_no_manifest_is_stale() -> None:
    assert list(stale_manifests()) == [], "run make manifests"


def test_the_base_is_what_helm_installs_by_default(build: Build) -> None:
    assert by_name(build()) == by_name([NAMESPACE, *rendered()])


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_is_what_its_values_make_of_the_chart(build: Build, component: str) -> None:
    _, values = COMPONENTS[component]

    assert by_name(build(component)) == by_name([NAMESPACE, *rendered(values)])


def test_the_opt_in_classes_are_a_component(build: Build) -> None:
    values = {"optInClasses": dict.fromkeys(opt_in_toggles(), True)}

    assert by_name(build("extended-resources")) == by_name([NAMESPACE, *rendered(values)])


def test_the_api_server_takes_the_base_and_knows_every_field(api_server: RealApiServer, build: Build) -> None:
    api = api_server.api
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
    for one in build("mps", "extended-resources"):
        api.request("PATCH", api.path_of(one, "gpu-dra"), one, content_type=APPLY, query=query)


def test_the_uninstallation_can_be_applied_by_hand(api_server: RealApiServer, build: Build) -> None:
    api = api_server.api
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
    made = build(of="uninstall")
    assert {one["kind"] for one in made} >= {"Job", "ServiceAccount", "ValidatingAdmissionPolicy"}
    assert {one["metadata"]["name"] for one in made} == {"gpu-dra-uninstall"}
    for one in made:
        api.request("PATCH", api.path_of(one, "gpu-dra"), one, content_type=APPLY, query=query)


def test_who_renders_the_chart_without_a_cluster_does_not_uninstall_by_applying_it() -> None:
    assert "gpu-dra-uninstall" not in rendered_text({}, hooks=True)
