"""TAB offers what is there, and waits for nothing that it does not need."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl import kubectl_completion
from tests.clusters import EmbeddedApiServer, commands
from tests.gpuctl.cli.kubeconfigs import BEARER, kubeconfig
from tests.gpuctl.doctor.clusters import waiting_claim
from tests.gpus import instance_types, known_machines

ROOT = Path(__file__).resolve().parents[3]
HEAVY = (
    *("kubernetes", "urllib3", "grpc", "rich", "jsonschema", "structlog", "re2"),
    *("envtest.embedded", "kubernetes_rules.cel"),
)
CLIENT = {"kubernetes", "urllib3", "rich", "structlog"}
"""What asks a cluster, and what it imports."""

SPY = """
import os, sys
from contextlib import suppress
from gpuctl.__main__ import main
heavy, *lines = sys.argv[1:]
sys.argv[0] = "gpuctl"
for line in lines:
    os.environ.update(COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    with suppress(SystemExit):
        main()
    print("--")
print(*(name for name in heavy.split() if name in sys.modules))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster with a few names in it; its current context is of the namespace team."""
    with EmbeddedApiServer() as server:
        for name in ("node-a", "node-b"):
            server.create("/api/v1/nodes", {"metadata": {"name": name}})
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        spec = {"containers": [{"name": "main", "image": "x"}]}
        for namespace, name in (("team", "train"), ("team", "eval"), ("default", "other")):
            path = f"/api/v1/namespaces/{namespace}/pods"
            server.create(path, {"metadata": {"name": name}, "spec": spec})
        claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
        server.create(claims, waiting_claim("gpu.nvidia.com"))
        folder = tmp_path_factory.mktemp("cluster")
        server.gate.admin_bearer = BEARER
        yield kubeconfig(folder / "config", server.url, here="team", there=None)


def offered(cluster: Path, *lines: str) -> tuple[list[list[str]], set[str]]:
    """What bash is offered at the end of each line, and which heavy modules were imported for that."""
    environment = {**os.environ, "KUBECONFIG": str(cluster), "_GPUCTL_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", SPY, " ".join(HEAVY), *lines],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    *found, imported = done.stdout.split("--\n")
    return [[one.removeprefix("plain,") for one in text.split()] for text in found], set(imported.split())


WITHOUT_CLUSTER = {
    "gpuctl st": ["status"],
    "gpuctl explain ": ["pod", "claim"],
    "gpuctl status --wa": ["--watch"],
    "gpuctl status -o n": ["name"],
    "gpuctl plan --machine hgx-h": ["hgx-h100", "hgx-h100-shared-nvswitch", "hgx-h200"],
}
OF_CLUSTER = {
    "gpuctl explain pod ": ["eval", "train"],
    "gpuctl explain pod train ": ["eval"],
    "gpuctl explain -n default pod ": ["other"],
    "gpuctl explain --context there pod ": ["other"],
    "gpuctl explain pod -n ": ["default", "kube-node-lease", "kube-public", "kube-system", "team"],
    "gpuctl status --context ": ["here", "there"],
    "gpuctl plan --topology node-": ["node-a", "node-b"],
    "gpuctl describe gpu node-": ["node-a/", "node-b/"],
}


def test_a_tab_offers_what_is_known_without_a_cluster_and_imports_nothing_heavy(cluster: Path) -> None:
    assert offered(cluster, *WITHOUT_CLUSTER) == ([*WITHOUT_CLUSTER.values()], set())


def test_a_tab_offers_the_names_in_the_cluster_and_imports_only_what_asks_it(cluster: Path) -> None:
    found, imported = offered(cluster, *OF_CLUSTER)

    assert found == [*OF_CLUSTER.values()]
    assert {"kubernetes"} <= imported <= CLIENT


def test_a_cluster_that_cannot_be_asked_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    gone = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", here=None)

    assert offered(gone, "gpuctl explain pod ")[0] == [[]]
    assert offered(tmp_path / "missing", "gpuctl status --context ")[0] == [[]]


def test_bash_completes_with_its_script(cluster: Path) -> None:
    script = CliRunner().invoke(commands, ["completion", "bash"]).stdout
    press = "COMP_WORDS=(gpuctl top node); COMP_CWORD=2; _gpuctl_completion gpuctl; echo ${COMPREPLY[@]}"
    folder = cluster.parent / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "gpuctl"
    program.write_text(f'#!/bin/sh\ncd "{ROOT}"\nexec "{sys.executable}" -m gpuctl "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "KUBECONFIG": str(cluster), "PATH": f"{folder}:{os.environ['PATH']}"}

    command = ["bash", "--norc", "-c", f"{script}\n{press}"]
    assert subprocess.check_output(command, env=environment, text=True) == "node-a node-b\n"


def test_kubectl_is_answered_in_its_own_form(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster))

    assert kubectl_completion.answer(["explain", "pod"], "t") == ["train", ":4"]
    assert kubectl_completion.answer([], "expl") == [
        "explain\tSay why pods or claims wait, and what would help.",
        ":4",
    ]
    assert kubectl_completion.answer(["explain", "pod"], "x") == [":4"]
    assert kubectl_completion.answer(["plan", "--config"], "") == [":0"]
    every = sorted((*known_machines(), *instance_types()))
    assert kubectl_completion.answer(["plan", "--machine"], "") == [*every, ":4"]
