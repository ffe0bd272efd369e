"""The copies of hooks on the host are whole, as the image's, and stay for as long as a spec names them."""

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletplugin.claims.cdi.hooks import HookCopies, Hooks
from kubeletplugin.claims.cdi.spec import MEMORY_HOOK, NO_FILES, MemoryHook, memory_hook_edits
from kubeletplugin.devices.host.driver_files import HOOK
from tests.gpus import NodeIncomplete
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.claims.cdi.fake_hook import hook_program, memory_hook_program
from tests.plugin import NO_HOOK, CdiDevice, HookSource, HostPaths, build_spec, hooks_folder


def nobody(_text: str) -> bool:
    """No spec names a copy."""
    return False


def copies(folder: Path, version: str, alone: Callable[[], bool] = lambda: True) -> HookCopies:
    """Those of an instance whose image has this version."""
    (folder / "data").mkdir(exist_ok=True)
    return HookCopies(
        folder / "data", {HOOK: hook_program(folder / version / "hook", version=version)}, alone
    )


def versions(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in hooks_folder(folder / "data").iterdir())


def test_the_copy_lies_in_a_folder_of_its_version_and_can_be_run_by_all(tmp_path: Path) -> None:
    copy = copies(tmp_path, "1.20.1").install() / HOOK

    assert copy.read_bytes() == (tmp_path / "1.20.1/hook").read_bytes()
    assert (copy.name, versions(tmp_path)) == ("nvidia-cdi-hook", ["1.20.1"])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (copy, copy.parent, copy.parent.parent)}
    assert modes == {0o755}


def test_a_start_leaves_a_good_copy_and_replaces_any_other(tmp_path: Path) -> None:
    own = copies(tmp_path, "1.20.1")
    copy = own.install() / HOOK
    first = copy.stat().st_ino

    assert (own.install() / HOOK).stat().st_ino == first
    copy.write_bytes(copy.read_bytes()[:-10])  # what a power cut leaves, or somebody
    assert (own.install() / HOOK).read_bytes() == (tmp_path / "1.20.1/hook").read_bytes()
    copy.chmod(0o600)
    assert stat.S_IMODE((own.install() / HOOK).stat().st_mode) == 0o755


@pytest.mark.parametrize("version", ["../../etc", "a/b", "", "-rf", "x" * 80], ids=repr)
def test_a_version_that_is_none_does_not_become_a_path(tmp_path: Path, version: str) -> None:
    own = copies(tmp_path, "1")
    (tmp_path / "1/hook.version").write_text(version)

    own.install()

    assert versions(tmp_path) == ["unknown"]


def test_an_older_copy_stays_for_as_long_as_a_spec_names_it(tmp_path: Path) -> None:
    older = copies(tmp_path, "1.18.0").install() / HOOK
    own, beside = copies(tmp_path, "1.20.1"), copies(tmp_path, "1.20.1", alone=lambda: False)
    own.install()

    assert own.tidy(lambda text: text in str(older)) == ()
    assert beside.tidy(nobody) == (), "another instance may be about to name it"
    assert versions(tmp_path) == ["1.18.0", "1.20.1"]
    assert own.tidy(nobody) == (older.parent.name,)
    assert versions(tmp_path) == ["1.20.1"]


def test_what_an_interrupted_copy_left_is_removed_and_a_copy_that_somebody_removed_is_made_again(
    tmp_path: Path,
) -> None:
    own = copies(tmp_path, "1.20.1")
    copy = own.install() / HOOK
    copy.with_name(".tmp-nvidia-cdi-hook-0123456789ab").touch()
    own.tidy(nobody)
    assert list(copy.parent.iterdir()) == [copy]

    shutil.rmtree(hooks_folder(tmp_path / "data"))
    own.tidy(nobody)
    assert copy.is_file()


def test_programs_of_one_image_lie_in_one_folder_and_another_content_of_either_is_another(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    sources = {HOOK: hook_program(tmp_path / "image/hook"), MEMORY_HOOK: tmp_path / "image/memory"}
    sources[MEMORY_HOOK].write_bytes(b"first")
    own = HookCopies(tmp_path / "data", sources, lambda: True)
    first = own.install()

    assert sorted(path.name for path in first.iterdir()) == [MEMORY_HOOK, HOOK]
    assert {stat.S_IMODE(path.stat().st_mode) for path in first.iterdir()} == {0o755}
    sources[MEMORY_HOOK].write_bytes(b"second")
    second = HookCopies(tmp_path / "data", sources, lambda: True).install()
    assert first != second
    assert [(folder / MEMORY_HOOK).read_bytes() for folder in (first, second)] == [b"first", b"second"]


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


def test_a_copy_that_cannot_be_made_is_refused_with_the_reason_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    hooks_folder(tmp_path / "data").touch()  # a file is in the way
    found = hooks(tmp_path, memory=memory_hook_program(tmp_path / "image" / MEMORY_HOOK))

    with pytest.raises(NodeIncomplete, match=r"gpu-memory-hook is not on the host.*cannot be copied to"):
        found.of_memory()
    hooks_folder(tmp_path / "data").unlink()
    assert Path(found.of_memory().program).is_file()


def test_a_hook_of_nvidias_that_cannot_be_used_takes_nothing_from_this_one(tmp_path: Path) -> None:
    image = memory_hook_program(tmp_path / "image" / MEMORY_HOOK)
    useless = hook_program(tmp_path / "image" / HOOK, calls=())
    assert Path(hooks(tmp_path, HookSource(useless), image).of_memory().program).is_file()
