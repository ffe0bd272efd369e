"""A kept cluster is for a person: his own kubectl is taken, or he is told what it costs to build one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from envtest.real.assets import ASSETS_VARIABLE
from tests.tools.scenarios.kubernetes_binaries import pretend_binaries
from tools.scenarios.__main__ import keep
from tools.scenarios.catalogue import scenario
from tools.scenarios.description import ClusterKind

WITHOUT_A_CLUSTER = "capacity-model"


def kept(kind: ClusterKind = "embedded") -> tuple[list[str], Path]:
    """What is said until Ctrl-C, which is pressed at the export, and the kubectl that is on the PATH then."""
    said: list[str] = []
    found: list[Path] = []

    def say(words: str) -> None:
        said.append(words)
        if words.startswith("export "):
            (folder,) = re.findall(r"PATH=([^:]+):\$PATH", words)
            found.append((Path(folder) / "kubectl").readlink())
            raise KeyboardInterrupt

    keep(scenario(WITHOUT_A_CLUSTER), kind, say)
    return said, found[0]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl of the person's own, the first on the PATH."""
    program = tmp_path / "own" / "kubectl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def test_ones_own_kubectl_is_taken_and_nothing_is_built(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path / "nothing"))

    said, kubectl = kept()

    assert kubectl == own
    assert not [one for one in said if "built" in one]
    assert said[-1] == "ending the cluster"


def test_without_one_it_is_that_of_kubernetes_and_its_price_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_binaries(tmp_path / "binaries", monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))

    said, kubectl = kept()

    assert kubectl == tmp_path / "binaries" / "kubectl"
    assert said[0].startswith("there is no kubectl on the PATH")


def test_real_kubernetes_comes_with_its_own(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_binaries(tmp_path / "binaries", monkeypatch)

    _, kubectl = kept("real")

    assert kubectl == tmp_path / "binaries" / "kubectl" != own
