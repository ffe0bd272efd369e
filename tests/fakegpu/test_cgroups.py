"""Pretended control groups come and go as a runtime has them, and follow those of cgroup v1 where asked."""

from pathlib import Path

import pytest

from fakegpu.machine.cgroups import FakeCgroups
from tests.gpus import Cgroup


@pytest.fixture
def groups(tmp_path: Path) -> FakeCgroups:
    """No group yet, and a machine that has cgroup v1 groups in ``v1``."""
    (tmp_path / "v1").mkdir()
    return FakeCgroups(tmp_path / "pretended", tmp_path / "v1")


def test_a_later_group_at_the_same_path_is_another_one(groups: FakeCgroups) -> None:
    for path in ("/a", "/pod/a"):
        first = groups.make(path)
        groups.remove("/a")
        groups.remove("/pod")
        second = groups.make(path)
        assert second.path == first.path
        assert not groups.is_there(first)
        assert groups.is_there(second)


@pytest.mark.parametrize("path", ["/..", "/a/../../b", "/", "/a\0b"])
def test_nothing_outside_of_the_root_is_made_or_removed(groups: FakeCgroups, path: str) -> None:
    for call in (groups.make, groups.remove):
        with pytest.raises(ValueError, match="is not a control group"):
            call(path)


def test_a_group_of_cgroup_v1_is_followed_for_as_long_as_it_is_there(
    groups: FakeCgroups, tmp_path: Path
) -> None:
    real = tmp_path / "v1/kubepods/pod1/a"
    real.mkdir(parents=True)
    text = "12:cpu,cpuacct:/other\n11:memory:/kubepods/pod1/a\n1:name=systemd:/other\n0::/\n"
    found = groups.of_process(text)
    assert found == Cgroup("/sys/fs/cgroup/kubepods/pod1/a", real.stat().st_ino)
    assert groups.of_process(text) == found
    real.rmdir()
    assert not groups.is_there(found)
    real.mkdir()
    assert groups.is_there(groups.of_process(text))
