"""CDI specs become what a container gets, as runtimes apply them."""

import json
from pathlib import Path

import pytest

from envtest.cdi import DeviceNode, InjectionFailed, Mount, resolve
from tests.clusters import Object

KIND = "k8s.gpu.nvidia.com/claim"
EDIT = {"env": ["X=1"]}


def write(folder: Path, name: str, devices: Object, edits: Object | None = None) -> None:
    listed = [{"name": device, "containerEdits": edit} for device, edit in devices.items()]
    spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": listed, "containerEdits": edits or {}}
    (folder / f"{name}.json").write_text(json.dumps(spec))


def test_the_edits_of_the_spec_and_of_its_devices_are_applied(tmp_path: Path) -> None:
    mount = {"containerPath": "/lib/x.so", "hostPath": str(tmp_path), "options": ["ro"]}
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}
    everywhere = {"env": ["A=1", "B=x=y"], "mounts": [mount], "hooks": [hook]}
    node = {"path": "/dev/nvidia0", "hostPath": "/dev/null", "major": 1, "minor": 3}
    write(
        tmp_path, "one", {"g0": {"deviceNodes": [node], "env": ["A=2"]}, "g1": {"env": ["C=1"]}}, everywhere
    )

    view = resolve(tmp_path, [f"{KIND}=g0", f"{KIND}=g1", f"{KIND}=g0"])

    assert view.nodes == {"/dev/nvidia0": DeviceNode("/dev/nvidia0", "/dev/null", 1, 3)}
    assert view.mounts == {"/lib/x.so": Mount("/lib/x.so", str(tmp_path), ("ro",))}
    assert view.env == {"A": "2", "B": "x=y", "C": "1"}
    assert view.hooks == [hook]


def test_specs_in_yaml_are_read_beside_those_in_json_and_other_files_are_not(tmp_path: Path) -> None:
    write(tmp_path, "one", {"g0": EDIT})
    write(tmp_path, "other", {"h0": EDIT})
    (tmp_path / "other.json").rename(tmp_path / "other.json.bak")
    (tmp_path / "two.yaml").write_text(
        f"""---
cdiVersion: v0.6.0
kind: {KIND}
devices:
- name: 1
  annotations: {{a: b}}
  containerEdits:
    env: [PI=3.10, "Q=1"]
    additionalGids:
    deviceNodes: [{{path: /dev/null, major: 0x1, minor: "3", fileMode: 0666, permissions: rw}}]
"""
    )

    view = resolve(tmp_path, [f"{KIND}=g0", f"{KIND}=1"])

    assert view.env == {"X": "1", "PI": "3.10", "Q": "1"}
    assert view.nodes == {"/dev/null": DeviceNode("/dev/null", "/dev/null", 1, 3, "rw")}
    assert view.groups == []
    with pytest.raises(InjectionFailed, match="h0"):
        resolve(tmp_path, [f"{KIND}=h0"])


DEVICE: Object = {"name": "g0", "containerEdits": EDIT}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cdiVersion": "9.0.0"}, 'invalid version "9.0.0"'),
        ({"cdiVersion": "0.4.0", "annotations": {"a": "b"}}, "the spec version must be at least v0.6.0"),
        ({"kind": "nvidia.com"}, 'invalid kind "nvidia.com"'),
        ({"devices": []}, "no devices"),
        ({"devices": [{**DEVICE, "containerEdits": {}}]}, 'invalid device "g0", empty device edits'),
        ({"devices": [DEVICE, DEVICE]}, 'multiple device "g0"'),
        ({"containerEdits": {"env": ["A"]}}, 'invalid environment variable "A"'),
        ({"containerEdits": {"hooks": [{"hookName": "later", "path": "/x"}]}}, 'invalid hook name "later"'),
        ({"containerEdits": {"mounts": [{"hostPath": "/x"}]}}, "empty container path"),
        ({"containerEdits": {"deviceNodes": [{"path": "/x", "major": "one"}]}}, "is no number"),
        ({"extra": 1}, "no field extra"),
    ],
)
def test_an_invalid_spec_is_ignored_and_named_where_its_device_is_missed(
    tmp_path: Path, change: Object, why: str
) -> None:
    write(tmp_path, "good", {"good": EDIT})
    bad = {"cdiVersion": "0.5.0", "kind": KIND, "devices": [DEVICE], **change}
    (tmp_path / "bad.json").write_text(json.dumps(bad))

    assert resolve(tmp_path, [f"{KIND}=good"]).env == {"X": "1"}
    with pytest.raises(InjectionFailed) as failed:
        resolve(tmp_path, [f"{KIND}=g0"])
    assert "bad.json" in str(failed.value)
    assert why in str(failed.value)


def test_a_device_that_no_spec_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one", {"g0": EDIT})

    with pytest.raises(InjectionFailed, match=f"^unresolvable CDI devices {KIND}=g7$"):
        resolve(tmp_path, [f"{KIND}=g7"])


def test_a_device_that_two_specs_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one", {"g0": EDIT})
    write(tmp_path, "two", {"g0": EDIT})

    with pytest.raises(
        InjectionFailed, match=f"unresolvable CDI devices {KIND}=g0 .ignored: conflicting device"
    ):
        resolve(tmp_path, [f"{KIND}=g0"])


@pytest.mark.parametrize(
    "edits",
    [
        {"deviceNodes": [{"path": "/dev/null", "hostPath": "/missing/nvidia0"}]},
        {"deviceNodes": [{"path": "/missing/nvidia0"}]},
        {"mounts": [{"containerPath": "/x", "hostPath": "/missing/nvidia0"}]},
    ],
)
def test_a_path_that_the_host_does_not_have_is_refused(tmp_path: Path, edits: Object) -> None:
    write(tmp_path, "one", {"g0": edits})

    with pytest.raises(InjectionFailed, match="/missing/nvidia0"):
        resolve(tmp_path, [f"{KIND}=g0"])
