"""A CDI spec is valid by the schema, in the lowest version, and says where the host has things."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeletplugin.claims.cdi.hook import CACHE, CUDA_COMPAT, LINKS, PROFILE
from kubeletplugin.claims.cdi.spec import file_edits, lowest_version
from kubeletplugin.devices.host.driver_files import Placed
from kubeletplugin.devices.host.library_files import Link
from tests.gpus import StorageError
from tests.kubeletplugin.cdi_schema import validate
from tests.plugin import (
    NO_NODES,
    CdiDevice,
    CdiStore,
    DeviceNode,
    DriverFiles,
    Edits,
    Hook,
    HostPaths,
    build_spec,
)

FILES = DriverFiles(
    "580.65.06",
    ("/usr/lib64/libcuda.so.580.65.06",),
    (Link("/usr/lib64/libcuda.so.1", "libcuda.so.580.65.06", "/usr/lib64/libcuda.so.580.65.06"),),
    ("/usr/bin/nvidia-smi",),
    ("/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",),
    ("/run/nvidia-persistenced/socket",),
    None,
)
SAME = HostPaths(Path("/"), Path("/"))
CONTAINER = HostPaths(Path("/driver-root"), Path("/run/nvidia/driver"))
CONTROL = DeviceNode("/dev/nvidiactl", "/dev/nvidiactl", 195, 255)


def spec(files: DriverFiles = FILES, host: HostPaths = SAME, name: str = "u-1-gpu-0", below: str = "") -> Any:
    node = DeviceNode("/dev/nvidia0", f"{below}/dev/nvidia0", 195, 0)
    built = json.loads(
        build_spec([CdiDevice(name, Edits((node,)))], [CONTROL], file_edits(files, host), host)
    )
    validate(built)
    return built


def test_a_device_node_carries_type_major_and_minor() -> None:
    assert spec()["devices"] == [
        {
            "name": "u-1-gpu-0",
            "containerEdits": {
                "deviceNodes": [
                    {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "permissions": "rw"}
                ]
            },
        }
    ]


def test_the_legacy_runtime_is_told_to_add_nothing_and_the_toolkit_where_libcuda_is() -> None:
    assert spec()["containerEdits"]["env"] == [
        "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64",
        "NVIDIA_VISIBLE_DEVICES=void",
    ]


def test_host_paths_are_those_of_the_host_not_of_the_plugins_container() -> None:
    built = spec(host=CONTAINER, below="/driver-root")

    (node,) = built["devices"][0]["containerEdits"]["deviceNodes"]
    assert (node["hostPath"], node["path"]) == ("/run/nvidia/driver/dev/nvidia0", "/dev/nvidia0")
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in built["containerEdits"]["mounts"]}
    assert mounts["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert built["containerEdits"]["deviceNodes"][0]["path"] == "/dev/nvidiactl"
    assert "hostPath" not in built["containerEdits"]["deviceNodes"][0]


ALL_CALLS = Hook("/opt/nvidia-cdi-hook", frozenset({LINKS, CUDA_COMPAT, CACHE, NO_NODES, PROFILE}))


def test_without_a_hook_links_are_mounts_of_what_they_lead_to() -> None:
    edits = spec(host=CONTAINER)["containerEdits"]

    assert "hooks" not in edits
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert mounts["/usr/lib64/libcuda.so.1"] == "/run/nvidia/driver/usr/lib64/libcuda.so.580.65.06", (
        "the link itself may be missing on the host"
    )


def test_with_a_hook_links_and_the_linker_cache_are_made_and_nothing_else_is_changed() -> None:
    edits = json.loads(f"{{{file_edits(FILES, CONTAINER, ALL_CALLS).members[1:]}}}")

    assert "/usr/lib64/libcuda.so.1" not in {mount["containerPath"] for mount in edits["mounts"]}
    assert {call["path"] for call in edits["hooks"]} == {"/opt/nvidia-cdi-hook"}
    assert [call["args"] for call in edits["hooks"]] == [
        ["nvidia-cdi-hook", "create-symlinks", "--link", "libcuda.so.580.65.06::/usr/lib64/libcuda.so.1"],
        ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=580.65.06"],
        ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"],
        ["nvidia-cdi-hook", "disable-device-node-modification"],
        ["nvidia-cdi-hook", "update-application-profile"],
    ]


def test_settings_have_places_of_their_own_in_the_container() -> None:
    files = replace(FILES, settings=(Placed("/usr/share/vulkan/a.json", "/etc/vulkan/a.json"),))
    mounts = spec(files, CONTAINER)["containerEdits"]["mounts"]

    assert {
        "hostPath": "/run/nvidia/driver/usr/share/vulkan/a.json",
        "containerPath": "/etc/vulkan/a.json",
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    } in mounts


@pytest.mark.parametrize(
    ("name", "below", "version"),
    [("u-1", "", "0.3.0"), ("0f5b-gpu", "", "0.5.0"), ("u-1", "/driver", "0.5.0")],
    ids=["plain", "a name that starts with a digit", "a host path"],
)
def test_the_version_is_the_lowest_that_the_features_need(name: str, below: str, version: str) -> None:
    built = spec(name=name, below=below)

    assert built["cdiVersion"] == lowest_version(built) == version


def test_nodes_of_the_host_are_named_by_the_hosts_path(tmp_path: Path) -> None:
    """Below a driver root that is no root file system there are none: the host's own are taken."""
    root, host = tmp_path / "home/kubernetes/bin/nvidia", tmp_path
    paths = HostPaths(root, Path("/home/kubernetes/bin/nvidia"), host)

    assert paths.of(f"{host}/dev/nvidia0") == "/dev/nvidia0"
    assert paths.of("/dev/nvidia0") == "/dev/nvidia0"
    assert paths.of(f"{root}/lib64/libcuda.so.1") == "/home/kubernetes/bin/nvidia/lib64/libcuda.so.1"


def test_the_host_is_looked_at_for_ldconfig_wherever_the_driver_root_is(tmp_path: Path) -> None:
    """Its link may be absolute: it is followed on the host, not in this container."""
    host = HostPaths(tmp_path / "run/nvidia/driver", Path("/run/nvidia/driver"), tmp_path)

    def calls() -> bool:
        return CACHE in file_edits(FILES, host, Hook("/usr/bin/hook", frozenset({LINKS, CACHE}))).members

    assert not calls()
    (tmp_path / "sbin").symlink_to("/usr/sbin")
    (tmp_path / "usr/sbin").mkdir(parents=True)
    assert not calls()
    (tmp_path / "usr/sbin/ldconfig").touch()
    assert calls()


_renames: list[tuple[Path, Path]] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "os.rename":
        _renames.append((Path(args[0]), Path(args[1])))


sys.addaudithook(_audit)


def test_a_spec_is_renamed_within_its_folder_from_a_name_that_is_no_specs(tmp_path: Path) -> None:
    """The watch of a runtime sees the old name go; it does not see a file come that it never saw."""
    _renames.clear()
    CdiStore(tmp_path).write("u-1", b"{}")
    ((unfinished, finished),) = [names for names in _renames if names[1].parent == tmp_path]
    assert unfinished.parent == finished.parent
    assert unfinished.suffix not in (".json", ".yaml")
    assert finished.name == "k8s.gpu.nvidia.com-claim_u-1.json"


def test_what_the_disk_refuses_names_the_file(tmp_path: Path) -> None:
    store = CdiStore(tmp_path)
    (tmp_path / "k8s.gpu.nvidia.com-claim_u-1.json").mkdir()
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.read("u-1"),
        lambda: store.write("u-1", b""),
        lambda: store.remove("u-1"),
    )
    for use in uses:
        with pytest.raises(StorageError, match=r"claim_u-1\.json failed"):
            use()
