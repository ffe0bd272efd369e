"""Where things are on a node: what is given counts, then what the plugin was given, then the defaults."""

import os
import subprocess
import sys
from pathlib import Path

from gpuctl.doctor.inside.places import local_command_lines, read_places

PLUGIN = [
    "/usr/bin/python3",
    "/usr/local/bin/gpu-dra-kubeletplugin",
    "--cdi-dir=/etc/cdi",
    "--nvml",
    "fake:t4",
]


def test_the_flags_of_the_running_plugin_are_taken() -> None:
    found = read_places({}, [["sleep", "1"], PLUGIN])

    assert (found.cdi_dir, found.nvml) == (Path("/etc/cdi"), "fake:t4")
    assert found.plugins_dir == Path("/var/lib/kubelet/plugins")


def test_the_host_has_the_driver_root_at_the_same_path_unless_it_is_said(tmp_path: Path) -> None:
    named = {"driver_root": str(tmp_path)}

    assert read_places(named, ()).roots().current().on_host == tmp_path
    told = named | {"host_driver_root": "/run/nvidia/driver"}
    assert read_places(told, ()).roots().current().on_host == Path("/run/nvidia/driver")


def test_without_a_driver_root_the_known_places_are_looked_at_below_the_hosts_root(tmp_path: Path) -> None:
    looked = read_places({"host_root": str(tmp_path)}, ()).roots().look()

    assert "/run/nvidia/driver" in {one.path for one in looked}
    assert all(one.reason for one in looked)


def test_a_process_that_ends_meanwhile_is_passed_over(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in ("self", str(os.getpid()), str(ended.pid), "version"):
        (tmp_path / name / "ns").mkdir(parents=True)
    for name in ("self", str(os.getpid())):
        (tmp_path / name / "ns" / "mnt").symlink_to("mnt:[1]")
    (tmp_path / str(os.getpid()) / "cmdline").write_bytes(b"gpu-dra-kubeletplugin\0")

    assert local_command_lines(tmp_path) == [["gpu-dra-kubeletplugin"]]


def test_what_is_given_counts_more_and_of_two_plugins_none_counts() -> None:
    assert read_places({"cdi_dir": "/run/cdi", "nvml": None}, [PLUGIN]).cdi_dir == Path("/run/cdi")
    assert read_places({}, [PLUGIN, PLUGIN]).cdi_dir == Path("/var/run/cdi")
    assert read_places({}, [["python3", "-m", "kubeletplugin", "--cdi-dir", "/c"]]).cdi_dir == Path("/c")
