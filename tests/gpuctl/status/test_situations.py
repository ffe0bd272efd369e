"""What ``gpuctl status`` says in each situation is approved, and its document is as its schema says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document
from tests.gpuctl.status.situations import SITUATIONS


@pytest.mark.parametrize("name", SITUATIONS)
def test_it_says_what_is_approved(name: str, tmp_path: Path) -> None:
    situation, asked = SITUATIONS[name]
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
    approve(f"status/{name}", "\n".join(told))
