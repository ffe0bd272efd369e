"""gpuctl demo as people run it: what they can reach, and that nothing is left however it ends."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.demo import watchdog
from gpuctl.demo.objects import NAMESPACE, DemoPod
from tests.clusters import ApiClient, ApiRefused, paths
from tests.eventually import eventually
from tests.gpuctl.documents import read_document
from tests.gpuctl.status.test_command import HEEDING
from tests.openssl import openssl

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder that is the demo's TMPDIR; afterwards it must be empty, and no process may name it."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as name:
        yield Path(name)
        assert list(Path(name).iterdir()) == []
        assert processes_of(name) == {}


def processes_of(folder: str | Path) -> dict[int, str]:
    """The processes that name the folder in their environment or command: ids and command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes()
            said = line + (path / "environ").read_bytes()
        except OSError:
            continue  # it ended meanwhile, or is another user's
        if f"{folder}".encode() in said:
            found[int(path.name)] = line.replace(b"\0", b" ").decode(errors="replace")
    return found


def said(line: str) -> str:
    """What a line of a shell prints, in an environment that has no programs of this checkout."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}
    return subprocess.check_output(["sh", "-c", line], env=environment, text=True)


def demo(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    # A user's own settings must not reach the demo's processes: this rules file does not exist.
    own = {"TMPDIR": str(folder), "GPU_DRA_CONFIG": "/missing/rules.yaml", "COLUMNS": "80"}
    return subprocess.Popen(
        [sys.executable, "-c", HEEDING, "demo", *arguments],
        cwd=PROJECT,
        env={**os.environ, **own, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=100)
    return process.returncode, output, errors


def test_a_kept_cluster_answers_who_has_its_kubeconfig_until_it_is_interrupted(
    folder: Path, tmp_path: Path
) -> None:
    openssl("version")
    process = demo(folder, "-o", "json", "--machine", f"{PROJECT}/deploy/tutorial/machine.yaml", "--keep")
    assert process.stderr is not None
    line = next(line for line in process.stderr if "KUBECONFIG=" in line)
    kubeconfig = Path(line.split("KUBECONFIG=")[1].split()[0])
    assert kubeconfig.stat().st_mode & 0o077 == 0
    config = json.loads(kubeconfig.read_text())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    authority = tmp_path / "authority"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    api = ApiClient(cluster["server"], authority, token)
    names = {one["spec"].get("extendedResourceName") for one in api.list_objects(paths.device_class())}
    assert "nvidia.com/gpu" in names
    pod = DemoPod("train")
    api.create(pod.claim(), NAMESPACE)
    api.create(pod.pod(), NAMESPACE)
    eventually(
        "its use is measured",
        lambda: said(f"{line}gpuctl top"),
        lambda text: re.search(r"train .*  0 +0 +0\n", text),
    )
    for stranger in ("", "wrong"):
        with pytest.raises(ApiRefused) as refused:
            ApiClient(cluster["server"], authority, stranger).list_objects(paths.pod())
        assert refused.value.status == 401

    process.send_signal(signal.SIGINT)

    code, output, _ = finished(process)
    assert (code, read_document(output, "DemoStory")["left"]) == (0, [])


def test_a_demo_that_is_killed_leaves_neither_a_process_nor_a_folder(folder: Path) -> None:
    process = demo(folder)
    assert process.stdout is not None
    assert any("compute together on GPU" in line for line in process.stdout)
    running = processes_of(folder)
    assert {"kubeletplugin", "controller", "watchdog"} <= {
        word for line in running.values() for word in re.findall(r"\w+", line)
    }
    process.kill()

    process.communicate()
    eventually("all of its processes end", lambda: processes_of(folder), lambda left: not left)
    eventually("its folder goes", lambda: list(folder.iterdir()), lambda left: not left)


def test_the_processes_of_others_who_look_at_the_cluster_are_spared(folder: Path) -> None:
    ours = folder / "kabc"
    ours.mkdir()
    looking = {**os.environ, "KUBECONFIG": str(ours / "admin.json")}
    marked = {**os.environ, watchdog.MARK: str(ours)}
    sleeping = [sys.executable, "-c", "import signal; signal.pause()", str(ours)]
    with subprocess.Popen(sleeping, env=looking) as other, subprocess.Popen(sleeping, env=marked) as started:
        try:
            eventually("the kernel shows its environment", lambda: watchdog.belongs(started.pid, str(ours)))
            watchdog.clear(str(ours))

            assert started.wait(30) == -signal.SIGKILL
            assert other.poll() is None
            assert not ours.exists()
        finally:
            other.kill()
            started.kill()


def test_a_process_that_ends_is_named_with_the_end_of_its_log(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'controller' in sys.orig_argv:\n"
        "    os.write(2, b'spoiled by the test')\n"
        "    os._exit(3)\n"
    )

    code, _, errors = finished(demo(folder, "-o", "json", PYTHONPATH=str(tmp_path)))

    assert code == 1
    assert "spoiled by the test" in errors
    assert "--- the end of the log of kubeletplugin" in errors
    assert errors.splitlines()[-1].startswith("gpuctl: python -m controller ended with status 3")
