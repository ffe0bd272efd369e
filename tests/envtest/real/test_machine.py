"""What a cluster needs from a machine, puts on it, and takes away again."""

from pathlib import Path

import pytest

from envtest.client.errors import MissingPrerequisite
from envtest.real import cgroups
from envtest.real.isolation import mounts_below
from envtest.real.startup import check_machine

ROOT_USER = 0


def test_missing_programs_are_named_with_the_packages_that_bring_them() -> None:
    with pytest.raises(MissingPrerequisite) as caught:
        check_machine(ROOT_USER, which=lambda name: None if name in ("runc", "unshare") else "/bin/sh")

    assert "runc, unshare" in str(caught.value)
    assert str(caught.value).endswith("apt-get install busybox-static runc util-linux")


def make_hierarchies(root: Path, names: tuple[str, ...]) -> None:
    """Folders as cgroup v1 mounts them, with the link that stands for a pair of controllers."""
    for name in names:
        (root / name).mkdir()
    (root / "cpu,cpuacct").symlink_to(names[0])


def test_control_groups_are_made_in_every_hierarchy_and_removed_with_all_below(tmp_path: Path) -> None:
    make_hierarchies(tmp_path, ("cpu", "memory"))
    cgroups.make("ours-node-0", tmp_path)
    cgroups.make("theirs-node-0", tmp_path)
    for hierarchy in ("cpu", "memory"):
        (tmp_path / hierarchy / "ours-node-0" / "kubepods" / "pod-1").mkdir(parents=True)

    assert cgroups.remove("ours-node-", tmp_path) == []

    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*-node-*"))
    assert left == ["cpu,cpuacct/theirs-node-0", "cpu/theirs-node-0", "memory/theirs-node-0"]


def test_mounts_below_a_folder_are_found_innermost_first_with_odd_names() -> None:
    table = "\n".join(
        f"{number} 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for number, point in enumerate(["/", "/k1", "/k1/a\\040b", "/k1/a\\040b/c", "/k12", "/proc"])
    )

    assert mounts_below(Path("/k1"), table) == [Path("/k1/a b/c"), Path("/k1/a b"), Path("/k1")]
