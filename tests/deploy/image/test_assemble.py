"""The tree of the image: its packages apart from those of the base, its programs, one time for all files."""

import stat
import subprocess
import sys
import zipfile
from pathlib import Path

from deploy.image.assemble import compile_all, install_wheel, make_environment, remove_unused, settle

ENTRIES = "[console_scripts]\nsay = said:main\n"


def wheel(folder: Path) -> Path:
    """A wheel of the project's name with one program."""
    path = folder / "gpu_dra-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("said.py", "def main():\n    print('said', __file__)\n")
        archive.writestr("gpu_dra-1.dist-info/METADATA", "Name: gpu-dra\nVersion: 1\n")
        archive.writestr("gpu_dra-1.dist-info/entry_points.txt", ENTRIES)
    return path


def test_a_program_names_the_python_of_the_image_and_its_function(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    install_wheel(wheel(tmp_path), tmp_path / "site", tmp_path / "programs")

    program = tmp_path / "programs" / "say"
    first, *rest = program.read_text().splitlines()
    assert first == "#!/usr/local/lib/gpu-dra/bin/python3 -I"
    assert "from said import main" in rest
    assert program.stat().st_mode & 0o111


def test_the_environment_sees_its_own_packages_alone(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "home", Path(sys.base_prefix, "bin", "python3"))
    (site / "own.py").write_text("")

    script = "import own, sys; print(*sys.path, sep='\\n')"
    python = str(tmp_path / "home" / "bin" / "python3")
    done = subprocess.run([python, "-I", "-c", script], capture_output=True, text=True, check=True)

    assert [line for line in done.stdout.splitlines() if "-packages" in line] == [str(site)]


def test_what_no_process_imports_is_removed(tmp_path: Path) -> None:
    kept = ("kubernetes/config/kube_config.py", "driver/__init__.py")
    gone = ("kubernetes/aio/client.py", "lib/tests/test_x.py", "bin/tool", "grpc/cygrpc.pyx", "a/b/c.pyi")
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    remove_unused(tmp_path)

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(kept)


def test_compiled_modules_are_not_compared_and_name_the_path_of_the_image(tmp_path: Path) -> None:
    site = tmp_path / "image" / "site"
    site.mkdir(parents=True)
    (site / "said.py").write_text("print('as compiled')\n")
    compile_all(site, tmp_path / "image")
    (site / "said.py").write_text("print('changed')\n")

    run = [sys.executable, "-c", "import said"]
    done = subprocess.run(run, cwd=site, capture_output=True, text=True, check=True)

    assert done.stdout == "as compiled\n"
    [compiled] = site.rglob("*.pyc")
    assert b"/site/said.py" in compiled.read_bytes()
    assert str(tmp_path).encode() not in compiled.read_bytes()


def test_nobody_but_the_owner_may_write_and_every_time_is_one(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True, mode=0o777)
    (tree / "folder" / "file").touch(mode=0o666)
    (tree / "folder" / "program").touch(mode=0o700)
    (tree / "link").symlink_to("nowhere")

    settle(tree, 1700000000)

    paths = [tree, *tree.rglob("*")]
    assert {path.lstat().st_mtime for path in paths} == {1700000000}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths if not path.is_symlink()}
    assert modes == {"tree": 0o755, "folder": 0o755, "file": 0o644, "program": 0o755}
