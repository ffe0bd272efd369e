"""Who has devices of the driver is read from the allocations of claims."""

from typing import Any

from controller.uninstall.cluster import holders, named


def claim(name: str, *results: tuple[str, str], pods: tuple[str, ...] = ()) -> dict[str, Any]:
    """A claim that is allocated devices of these drivers from these pools."""
    given = [{"driver": driver, "pool": pool, "device": "d"} for driver, pool in results]
    users = [{"resource": "pods", "name": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": given}}, "reservedFor": users}
    return {"metadata": {"namespace": "team", "name": name}, "status": status}


OURS, THEIRS = ("gpu.nvidia.com", "n1/gpu.nvidia.com"), ("nic.example.com", "n1")


def test_a_claim_of_two_drivers_counts() -> None:
    (found,) = holders([claim("both", THEIRS, OURS, pods=("b", "a"))])

    assert str(found) == "pod team/a, team/b on n1"


def test_a_claim_that_no_pod_uses_counts_while_it_is_allocated() -> None:
    (found,) = holders([claim("idle", OURS)])

    assert str(found) == "claim team/idle on n1, without a pod"


def test_a_long_list_is_cut_and_says_so() -> None:
    found = holders([claim(f"c{number:02}", OURS, pods=(f"p{number:02}",)) for number in range(25)])

    assert named(found).endswith("; and 5 more")
    assert "p19" in named(found)
    assert "p20" not in named(found)
