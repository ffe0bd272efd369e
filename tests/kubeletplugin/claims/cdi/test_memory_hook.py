"""A device with a limit has the runtime ask the plugin before a container starts; there is no way without."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from driver.errors import NodeIncomplete
from kubeletplugin.claims.cdi.hook import NO_HOOK, HookSource
from kubeletplugin.claims.cdi.hooks import Hooks, hooks_folder
from kubeletplugin.claims.cdi.spec import (
    MEMORY_HOOK,
    NO_FILES,
    TIMEOUT_SECONDS,
    WAITS_SECONDS,
    CdiDevice,
    HostPaths,
    MemoryHook,
    build_spec,
    memory_hook_edits,
)
from kubeletplugin.devices.host.driver_files import HOOK
from tests import needs
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.claims.cdi.fake_hook import hook_program, memory_hook_program

PROGRAM = MemoryHook("/plugins/hook/0-1/gpu-memory-hook", "/plugins/memory/sockets")


def hooks(folder: Path, source: HookSource = NO_HOOK, memory: Path | None = None) -> Hooks:
    """What an instance of the plugin has once it has started."""
    (folder / "data").mkdir(exist_ok=True)
    found = Hooks(source, folder / "data", lambda: True, folder, memory)
    found.install()
    return found


@pytest.mark.parametrize(("uid", "version"), [("a1", "0.3.0"), ("1a", "0.5.0")])
def test_the_call_is_a_create_runtime_hook_in_the_lowest_version_that_has_all(uid: str, version: str) -> None:
    device = CdiDevice(f"{uid}-gpu", memory_hook_edits(uid, f"{uid}-gpu", PROGRAM))
    spec = json.loads(build_spec((device,), (), NO_FILES, HostPaths(Path("/"), Path("/"))))

    validate(spec)
    assert spec["cdiVersion"] == version
    (call,) = spec["devices"][0]["containerEdits"]["hooks"]
    assert call == {
        "hookName": "createRuntime",
        "path": PROGRAM.program,
        "args": [
            "gpu-memory-hook",
            "--sockets=/plugins/memory/sockets",
            f"--claim={uid}",
            f"--device={uid}-gpu",
            "--seconds=30",
        ],
        "env": ["GOTRACEBACK=none"],
        "timeout": 35,
    }


def test_the_hook_itself_gives_up_before_the_runtime_ends_it_without_a_word() -> None:
    assert WAITS_SECONDS + 1 < TIMEOUT_SECONDS


def test_the_copy_on_the_host_is_named_and_lies_beside_nvidias(tmp_path: Path) -> None:
    image = memory_hook_program(tmp_path / "image" / MEMORY_HOOK)
    nvidias = HookSource(hook_program(tmp_path / "image" / HOOK))
    hook = hooks(tmp_path, nvidias, image).of_memory()

    program = Path(hook.program)
    assert program.read_bytes() == image.read_bytes()
    assert program.parent.parent == hooks_folder(tmp_path / "data")
    assert program.parent.name.startswith("1.20.1-")
    assert program.with_name(HOOK).is_file()
    assert hook.sockets == str(tmp_path / "data/memory/sockets")


def test_it_is_copied_also_where_the_other_hook_is_the_hosts(tmp_path: Path) -> None:
    image = memory_hook_program(tmp_path / "image" / MEMORY_HOOK)
    program = Path(hooks(tmp_path, HookSource(on_host="/opt/hook"), image).of_memory().program)
    assert [path.name for path in program.parent.iterdir()] == [MEMORY_HOOK]


def test_a_copy_that_was_removed_or_may_not_be_run_is_made_again_when_it_is_needed(tmp_path: Path) -> None:
    found = hooks(tmp_path, memory=memory_hook_program(tmp_path / "image" / MEMORY_HOOK))
    program = Path(found.of_memory().program)

    shutil.rmtree(hooks_folder(tmp_path / "data"))
    assert Path(found.of_memory().program).is_file()
    program.chmod(0o600)
    found.of_memory()
    assert program.stat().st_mode & 0o777 == 0o755


def test_a_plugin_without_the_program_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(NodeIncomplete, match=r"has no gpu-memory-hook.*make memory-hook.*retryable"):
        hooks(tmp_path).of_memory()


def test_a_copy_that_cannot_be_made_is_refused_with_the_reason_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    hooks_folder(tmp_path / "data").touch()  # a file is in the way
    found = hooks(tmp_path, memory=memory_hook_program(tmp_path / "image" / MEMORY_HOOK))

    with pytest.raises(NodeIncomplete, match=r"gpu-memory-hook is not on the host.*cannot be copied to"):
        found.of_memory()
    hooks_folder(tmp_path / "data").unlink()
    assert Path(found.of_memory().program).is_file()


@needs.MOUNTS
def test_a_folder_that_is_mounted_noexec_is_no_place_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", folder], check=True)
    try:
        found = hooks(tmp_path, memory=memory_hook_program(tmp_path / "image" / MEMORY_HOOK))
        with pytest.raises(NodeIncomplete, match=r"cannot be run there: .* not mounted noexec"):
            found.of_memory()
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_hook_of_nvidias_that_cannot_be_used_takes_nothing_from_this_one(tmp_path: Path) -> None:
    image = memory_hook_program(tmp_path / "image" / MEMORY_HOOK)
    useless = hook_program(tmp_path / "image" / HOOK, calls=())
    assert Path(hooks(tmp_path, HookSource(useless), image).of_memory().program).is_file()
