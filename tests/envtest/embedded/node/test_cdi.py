"""CDI specs become what a container gets, as runtimes apply them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driver.errors import NodeIncomplete
from envtest.embedded.node.cdi import DeviceNode, Mount, resolve

KIND = "k8s.gpu.nvidia.com/claim"


def write(folder: Path, name: str, devices: dict[str, Any], edits: dict[str, Any] | None = None) -> None:
    listed = [{"name": device, "containerEdits": edit} for device, edit in devices.items()]
    spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": listed, "containerEdits": edits or {}}
    (folder / f"{name}.json").write_text(json.dumps(spec))


def test_the_edits_of_the_spec_and_of_its_devices_are_applied(tmp_path: Path) -> None:
    mount = {"containerPath": "/lib/x.so", "hostPath": str(tmp_path), "options": ["ro"]}
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}
    everywhere = {"env": ["A=1", "B=x=y"], "mounts": [mount], "hooks": [hook]}
    node = {"path": "/dev/nvidia0", "hostPath": "/dev/null", "major": 1, "minor": 3}
    write(tmp_path, "one", {"g0": {"deviceNodes": [node], "env": ["A=2"]}, "g1": {}}, everywhere)

    view = resolve(tmp_path, [f"{KIND}=g0", f"{KIND}=g1", f"{KIND}=g0"])

    assert view.nodes == {"/dev/nvidia0": DeviceNode("/dev/nvidia0", "/dev/null", 1, 3)}
    assert view.mounts == {"/lib/x.so": Mount("/lib/x.so", str(tmp_path), ("ro",))}
    assert view.env == {"A": "2", "B": "x=y"}
    assert view.hooks == [hook]


def test_a_device_that_is_not_asked_for_adds_nothing(tmp_path: Path) -> None:
    write(tmp_path, "one", {"g0": {}, "g1": {"deviceNodes": [{"path": "/dev/null"}]}})
    write(tmp_path, "two", {"h0": {}}, {"env": ["A=1"]})

    view = resolve(tmp_path, [f"{KIND}=g0"])

    assert (view.nodes, view.env) == ({}, {})


def test_a_container_without_devices_gets_nothing(tmp_path: Path) -> None:
    assert resolve(tmp_path, []).env == {}


def test_a_device_that_no_spec_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one", {"g0": {}})

    with pytest.raises(NodeIncomplete, match="0 CDI specs"):
        resolve(tmp_path, [f"{KIND}=g7"])


def test_a_device_that_two_specs_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one", {"g0": {}})
    write(tmp_path, "two", {"g0": {}})

    with pytest.raises(NodeIncomplete, match="2 CDI specs"):
        resolve(tmp_path, [f"{KIND}=g0"])


@pytest.mark.parametrize(
    "edits",
    [
        {"deviceNodes": [{"path": "/dev/null", "hostPath": "/missing/nvidia0"}]},
        {"deviceNodes": [{"path": "/missing/nvidia0"}]},
        {"mounts": [{"containerPath": "/x", "hostPath": "/missing/nvidia0"}]},
    ],
)
def test_a_path_that_the_host_does_not_have_is_refused(tmp_path: Path, edits: dict[str, Any]) -> None:
    write(tmp_path, "one", {"g0": edits})

    with pytest.raises(NodeIncomplete, match="/missing/nvidia0"):
        resolve(tmp_path, [f"{KIND}=g0"])
