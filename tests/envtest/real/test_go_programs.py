"""Programs of others are built once from a pinned module, and anew when the module changes."""

from pathlib import Path

from tests.clusters import go_programs
from tests.envtest.real.test_assets import BUILDING_GO, give_go


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def test_a_module_is_built_once_and_anew_when_it_changes(tmp_path: Path) -> None:
    environment = give_go(tmp_path, BUILDING_GO)
    module = tmp_path / "modules" / "tool"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module one\n")

    built = go_programs("tool", environment=environment, modules_folder=module.parent)
    assert (built / "ctr").is_file()
    once = runs(tmp_path)
    assert go_programs("tool", environment=environment, modules_folder=module.parent) == built
    assert runs(tmp_path) == once

    (module / "go.mod").write_text("module two\n")
    assert go_programs("tool", environment=environment, modules_folder=module.parent) != built
    assert runs(tmp_path) == 2 * once
