"""What pictures show of a node is what the scheduler gives, and what the driver taints."""

from __future__ import annotations

import pytest

from tools.docs.pictures.before_and_after import arrivals, before_and_after
from tools.docs.pictures.node_pictures import ALL_TIERS, SceneImpossible, Wanted, claimed, published, with_xid


def test_a_pod_that_gets_nothing_is_no_picture() -> None:
    slices = published("hgx-h100", ALL_TIERS, gpus=1)
    both = [Wanted("team", "train", "large"), Wanted("team", "web", "mig-small")]

    with pytest.raises(SceneImpossible, match="web gets no device of class mig-small"):
        claimed(slices, both)


def test_a_sick_gpu_is_tainted_in_all_of_its_forms_and_no_other_is() -> None:
    view = claimed(with_xid(published("hgx-h100", ALL_TIERS), 3, 79), [])

    sick = {gpu.index: {str(one.taint) for one in gpu.taints} for gpu in view.gpus if gpu.taints}
    assert sick == {3: {"gpu.nvidia.com/needs-reboot=xid-79:NoSchedule", "gpu.nvidia.com/xid=79:NoSchedule"}}
    assert all(one.devices == one.of_gpu for one in view.gpus[3].taints)


def test_the_readme_shows_as_many_pods_as_really_fit() -> None:
    text = before_and_after()

    assert "8 pods run, 9 wait; 4.25 of 8 GPUs are used" in text
    assert "all 17 pods run; 1 GPU is free" in text
    assert len({one.name for one in arrivals() if f">{one.name}<" in text}) == 17
