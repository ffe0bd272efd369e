"""``gpuctl status`` goes on with what changes, and its exit code tells scripts."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.status.picture import Form, News
from tests.clusters import ClusterView, EmbeddedApiServer, commands, views_of
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document
from tests.gpuctl.status.situations import (
    CLIQUE,
    SITUATIONS,
    SLICES,
    Situation,
    cut_slices,
    held,
    hold,
    in_a_rack,
    slices,
)

# As from a terminal: a test run in the background hands an ignored SIGINT down to its children.
HEEDING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("gpuctl", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(("situation", "asked"), SITUATIONS.items())
def test_it_says_what_is_approved(situation: Situation, asked: tuple[str, ...], tmp_path: Path) -> None:
    told = []
    with EmbeddedApiServer() as server:
        situation(server, tmp_path)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))
        for words in (*asked, "-o json"):
            arguments = ["status", "--kubeconfig", kubeconfig, *words.split()]
            answer = CliRunner().invoke(commands, arguments, catch_exceptions=False)
            shown = f"$ gpuctl status {words}".rstrip()
            told.append(f"{shown}\n{answer.output}(exit code {answer.exit_code})\n")

    *told, document = told
    read_document("\n".join(document.splitlines()[1:-1]), "GpuStatus")
    approve(f"status/{situation.__name__.replace('_', '-')}", "\n".join(told))


def test_a_large_cluster_is_read_in_pages_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.cli.cluster._PAGE", "5")
    with EmbeddedApiServer() as server:
        for index in range(8):
            server.create("/api/v1/nodes", {"metadata": {"name": f"node-{index}"}})
        view = ClusterView.connect(server.write_kubeconfig(tmp_path / "config"))

        nodes = view.nodes()

        assert len({node["metadata"]["name"] for node in nodes}) == len(nodes) == 8
        assert nodes[0]["kind"] == "Node"
        assert server.count("list", "nodes") == 2


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A gpuctl that goes on until Ctrl-C, and at the end of the block at the latest."""
    command = [sys.executable, "-c", HEEDING, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_goes_on_with_what_changes_until_it_is_interrupted(tmp_path: Path) -> None:
    (item,) = slices()
    with EmbeddedApiServer() as server:
        stored = server.create(SLICES, item)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))

        def change(taints: list[dict[str, str]]) -> None:
            nonlocal stored
            stored = json.loads(json.dumps(stored))
            stored["spec"]["devices"][0]["taints"] = taints
            stored = server.replace(f"{SLICES}/{stored['metadata']['name']}", stored)

        with watching("status", "-w", "--kubeconfig", kubeconfig) as process:
            assert process.stdout is not None
            first = [process.stdout.readline() for _ in range(5)]
            change([{"key": "gpu.nvidia.com/lost", "effect": "NoExecute"}])
            tainted = [process.stdout.readline() for _ in range(2)]
            change([])
            well = [process.stdout.readline() for _ in range(2)]
            lists = server.count("list", "resourceslices")
            process.send_signal(signal.SIGINT)
            code = process.wait(30)

    sentence = "node-a: gpu-0000-17-00-0: tainted gpu.nvidia.com/lost:NoExecute\n"
    assert first[0].startswith("NODE ")
    assert first[4] == "all is well\n"
    assert re.split(" {2,}", tainted[0].strip())[3:] == ["4", "0", "3", "0", "0"]
    assert tainted[1] == sentence
    assert re.split(" {2,}", well[0].strip())[3:] == ["4", "0", "4", "0", "0"]
    assert well[1] == f"resolved: {sentence}"
    assert code == 130
    assert lists == 2  # the first picture and the reflector's: nothing was asked again


def test_a_channel_that_a_gang_gets_is_a_change(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        in_a_rack(server, tmp_path)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))
        with watching("status", "-w", "-o", "json", "--kubeconfig", kubeconfig) as process:
            assert process.stdout is not None
            held = (line.strip() for line in process.stdout if '"held"' in line)
            first = next(held)
            hold(server, "second", "channel-1", driver="channels.gpu.nvidia.com", pool=CLIQUE)

            assert (first, next(held)) == ('"held": 1,', '"held": 2,')


def test_what_is_new_is_told_once(tmp_path: Path) -> None:
    published = cut_slices(tmp_path)
    whole = [one.state for one in views_of(published, [held("train", "gpu-0000-1b-00-0")])]
    told = []
    for form in (Form(by_node=True), Form(by_node=True, wide=True)):
        news = News([one.state for one in views_of(published, ())], (), form)
        for nodes, problems in ((whole, ()), (whole, ()), (whole, ["1 pod cannot start: a/b"]), ([], ())):
            told += [*news.lines(nodes, problems), "--"]

    approve("status/watch-lines", "\n".join((*told, "")))
