"""``gpuctl gather`` writes what a bug report needs, and no secret, wherever one is planted."""

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.inside.places import read_places
from gpuctl.gather.archive import read_archive, write_archive
from gpuctl.gather.report import local_report
from tests.clusters import EmbeddedApiServer, Object, commands
from tests.gpuctl.approved import approve
from tests.gpuctl.cli.kubeconfigs import BEARER, kubeconfig
from tests.gpuctl.doctor.clusters import NODE
from tests.gpuctl.doctor.programs import FakeKubectl
from tests.gpuctl.documents import read_document
from tests.gpuctl.gather.secrets_everywhere import (
    SECRET,
    fill_cluster,
    fill_node,
    log_with_secrets,
    metrics_with_secrets,
)


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as server:
        fill_cluster(server)
        log = log_with_secrets()
        server.find_log = lambda _uid, container: log if container == "driver" else None
        yield server


def gathered(tmp_path: Path, *arguments: str, **environment: str) -> tuple[Result, dict[str, bytes]]:
    """What the command said, and the members of what it wrote."""
    file = tmp_path / "report.tar.gz"
    ran = CliRunner().invoke(
        commands, ["gather", *arguments, "--to", str(file)], env=environment, catch_exceptions=False
    )
    data = file.read_bytes() if file.exists() else b""
    return ran, {one.name: one.data for one in read_archive(data)} if data else {}


def leaks(members: dict[str, bytes]) -> list[str]:
    """The secrets that came out, each with its file."""
    return [
        f"{name}: {found.decode()}"
        for name, data in members.items()
        for found in re.findall(rb".{0,40}" + SECRET.encode() + rb".{0,20}", data)
    ]


def kept(data: bytes) -> str:
    """What is kept of objects, with ever the same times and names that the server made, in few lines."""
    text = re.sub(r'(?<=uid": )"[^"]*"|(?<=resourceVersion": )"\d+"|"20[^"]*Z"', '"MADE"', data.decode())
    return "".join(f"{json.dumps(one, sort_keys=True)}\n".replace("}, ", "},\n") for one in json.loads(text))


def access(server: EmbeddedApiServer, tmp_path: Path) -> str:
    server.gate.admin_bearer = BEARER
    return str(kubeconfig(tmp_path / "config", server.url, here="team"))


def test_a_report_has_what_is_needed_no_secret_and_is_its_owners_alone(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    ran, members = gathered(tmp_path, "--kubeconfig", access(server, tmp_path))
    objects: Object = {
        name.removeprefix("objects/").removesuffix(".json"): json.loads(data)
        for name, data in members.items()
        if name.startswith("objects/")
    }
    file = tmp_path / "report.tar.gz"
    before = file.read_bytes()
    again = CliRunner().invoke(
        commands, ["gather", "--kubeconfig", access(server, tmp_path), "--to", str(file)]
    )

    assert (ran.exit_code, leaks(members)) == (0, [])
    for name in ("pods", "resourceclaims"):
        approve(f"gather/{name}", kept(members[f"objects/{name}.json"]))
    assert [one["metadata"]["name"] for one in objects["deviceclasses"]] == ["gpu.nvidia.com"]
    assert [one["reason"] for one in objects["events"]] == ["GpuWithheld"]
    assert "rules: []" in objects["node-configuration-gpu-dra"]["data"]["config.yaml"]
    assert objects["resourceslices"][0]["spec"]["devices"]
    assert objects["nodes"][0]["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.1"
    assert read_document(members["doctor.json"].decode(), "DoctorReport")["results"]
    assert b"claim prepared" in members["logs/gpu-dra-kubeletplugin-x/driver.log"]
    assert b"not read" in members["logs/gpu-dra-kubeletplugin-x/driver.previous.log"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert isinstance(again.exception, FileExistsError)
    assert file.read_bytes() == before


def test_no_secret_of_a_node_comes_out_and_the_same_files_give_the_same_report(tmp_path: Path) -> None:
    with metrics_with_secrets() as port:
        files = fill_node(tmp_path / "node", port)
        given = {name.removeprefix("GPU_DRA_").lower(): value for name, value in files.environment.items()}
        lines = [files.command_line, ["x"]]
        first, second = (tuple(local_report(read_places(given, ()), lines)) for _ in range(2))

    members = {one.name: one.data for one in first}
    assert leaks(members) == []
    assert b"gpu_dra_published_devices 8" in members["metrics-0.txt"]
    uid = "11111111-2222-3333-4444-555555555555"
    assert json.loads(members[f"journal/{uid}.json"])["entry"]["uid"] == uid
    assert write_archive(first, 7.0) == write_archive(second, 7.0)


def test_a_node_is_gathered_in_the_pod_of_its_plugin(
    server: EmbeddedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with metrics_with_secrets() as port:
        files = fill_node(tmp_path / "node", port)
        kubectl = FakeKubectl(tmp_path / "bin", files.environment)
        monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")

        _, members = gathered(tmp_path, NODE, "--kubeconfig", access(server, tmp_path))

    approve("gather/files", "".join(f"{name}\n" for name in members))
    assert leaks(members) == []
    inside = read_document(members[f"nodes/{NODE}/doctor.json"].decode(), "DoctorReport")
    assert [one["check"] for one in inside["results"]] == [check.name for check in INSIDE]
    [call] = kubectl.calls
    assert call[call.index("--") :] == ["--", "gpuctl", "gather", "--local", "--to", "-"]


def test_a_node_that_cannot_be_reached_says_so_in_the_report(
    server: EmbeddedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    ran, members = gathered(tmp_path, NODE, "--kubeconfig", access(server, tmp_path))

    assert ran.exit_code == 0
    assert b"kubectl is not on the PATH" in members[f"nodes/{NODE}/not-read.txt"]
