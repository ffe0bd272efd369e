"""The workflows run what .ci/run runs, and who reports a bug is asked for what finds it."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"


def workflow(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((GITHUB / "workflows" / f"{name}.yaml").read_text())
    return dict(loaded)


def test_every_part_of_the_landing_check_is_a_job() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    found = re.search(r"^parts=\(([a-z -]+)\)$", script, re.MULTILINE)

    assert found is not None
    assert workflow("ci")["jobs"]["part"]["strategy"]["matrix"]["part"] == found[1].split()


def test_a_release_is_built_by_make_release_and_names_no_registry() -> None:
    text = (GITHUB / "workflows" / "release.yaml").read_text()
    steps = [step for job in workflow("release")["jobs"].values() for step in job["steps"]]

    assert 'make release VERSION="$VERSION" PLATFORMS=' in [step.get("run") for step in steps]
    assert set(re.findall(r"[a-z0-9-]+\.[a-z]+/[a-z]", text)) <= {"registry.example/t"}
    (built,) = [step["with"] for step in steps if "build-push-action" in step.get("uses", "")]
    assert (built["platforms"], built["provenance"], built["sbom"]) == (
        "linux/amd64,linux/arm64",
        "mode=max",
        True,
    )


def test_a_report_of_a_bug_needs_what_gpuctl_gather_writes() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yaml").read_text())
    fields = {one["id"]: one for one in form["body"]}

    assert "gpuctl gather NODE" in fields["gathered"]["attributes"]["description"]
    assert fields["gathered"]["validations"] == {"required": True}
