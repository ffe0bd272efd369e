"""What runs in a pod is bounded in time and size, since a node may send without end."""

import signal
from pathlib import Path

import pytest

from gpuctl.doctor.pod_exec import PluginPod, plugin_pod, run_bounded, run_in_pod
from tests.clusters import Unread
from tests.gpuctl.doctor.clusters import NODE, driver_pod
from tests.gpuctl.doctor.programs import FakeKubectl
from tests.gpus import ConfigError

TARGET = PluginPod("gpu-dra", "plugin", "driver")


def printing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> bytes:
    """What a program in the pod gives that is this shell script."""
    kubectl = FakeKubectl(tmp_path / "bin", {}, ("/bin/sh", "-c", script))
    monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
    return run_in_pod(TARGET, ("doctor",), None, None)


@pytest.mark.parametrize("code", [0, 3])
def test_what_it_printed_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    assert printing(tmp_path, monkeypatch, f"echo found; exit {code}") == b"found\n"


@pytest.mark.parametrize("script", ["exit 0", "echo half; exit 137", "echo why >&2; exit 1"])
def test_no_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    with pytest.raises(ConfigError, match="failed"):
        printing(tmp_path, monkeypatch, script)


def test_what_prints_without_end_is_ended() -> None:
    code, printed, _ = run_bounded(["yes"], 60.0, 1000)

    assert code != 0
    assert len(printed) == 1001


def test_what_does_not_end_is_ended() -> None:
    assert run_bounded(["sleep", "50"], 0.1, 1000) == (-signal.SIGKILL, b"", "")


def test_the_pod_is_the_newest_that_runs_the_plugin_there() -> None:
    old, new, elsewhere = (driver_pod("kubeletplugin") for _ in range(3))
    old["metadata"] |= {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}
    new["metadata"] |= {"name": "new", "creationTimestamp": "2026-01-02T00:00:00Z"}
    elsewhere["spec"]["nodeName"] = "other"

    assert plugin_pod((new, old, elsewhere, driver_pod("mps")), NODE) == PluginPod("gpu-dra", "new", "driver")
    assert isinstance(plugin_pod((elsewhere,), NODE), Unread)
