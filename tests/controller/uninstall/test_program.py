"""The program says in one line what it did, or why it did not."""

import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from controller.uninstall.__main__ import main
from tests.controller.uninstall.played_cluster import PlayedCluster

BOTH = ["gpu-dra-controller", "gpu-dra-kubeletplugin"]


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["--kubeconfig", str(folder / "kubeconfig"), "--settle-seconds=0", *arguments]
    )


def test_a_namespace_without_the_driver_is_left_alone(played: PlayedCluster, tmp_path: Path) -> None:
    for item in played.pods("gpu-dra-controller"):
        played.client.delete(f"/api/v1/namespaces/gpu-dra/pods/{item['metadata']['name']}")

    done = run(tmp_path, "--namespace=team")

    assert done.exit_code == 0, done.output
    assert "No ResourceSlice is left" in done.output
    assert played.sets() == ["gpu-dra-controller", "gpu-dra-kubeletplugin"]


def test_told_to_end_it_has_the_driver_serve_again(played: PlayedCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "controller.uninstall", "--kubeconfig", str(tmp_path / "kubeconfig")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while len(played.sets()) == len(BOTH):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "Error: the uninstallation was stopped: uninstall again" in output
    assert played.sets() == BOTH
