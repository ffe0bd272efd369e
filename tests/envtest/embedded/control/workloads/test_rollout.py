"""The sizes of ReplicaSets while a Deployment is rolled out or scaled are those that Kubernetes chooses."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.embedded.control.workloads import rollout

Object = dict[str, Any]


def deployment(replicas: int, surge: int | str = "25%", unavailable: int | str = "25%") -> Object:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main"}]}}
    spec = {"replicas": replicas, "strategy": strategy, "template": template}
    return {"metadata": {"name": "a"}, "spec": spec}


def replica_set(
    name: str, replicas: int, available: int | None = None, most: int = 0, age: int = 0
) -> Object:
    """One that was created ``age`` seconds before others."""
    annotations = {rollout.MOST: str(most)} if most else {}
    created = f"2026-01-01T00:00:{30 - age:02}Z"
    return {
        "metadata": {"name": name, "annotations": annotations, "creationTimestamp": created},
        "spec": {"replicas": replicas},
        "status": {"availableReplicas": replicas if available is None else available},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (2, 0, "1%", (0, 1)),  # what is rounded to nothing still lets a rollout go on
        (1, 0, "1%", (0, 1)),
        (2, "1%", "25%", (1, 0)),
        (1, "1%", "25%", (1, 0)),
        (2, "1%", 0, (1, 0)),
        (10, "25%", "25%", (3, 2)),
        (4, 1, 2, (1, 2)),
        (1, 0, 5, (0, 1)),  # no more than there are
    ],
)
def test_shares_are_rounded_so_that_a_rollout_can_go_on(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    one = deployment(replicas, surge, unavailable)

    assert (rollout.most_surge(one), rollout.most_unavailable(one)) == expected


@pytest.mark.parametrize(
    ("replicas", "surge", "old", "new", "expected"),
    [(10, 0, 0, 0, 10), (10, 2, 0, 0, 10), (10, 0, 5, 0, 5), (10, 2, 10, 2, 2), (10, 2, 8, 2, 4)],
)
def test_new_pods_come_as_far_as_there_is_room(
    replicas: int, surge: int, old: int, new: int, expected: int
) -> None:
    sets = [replica_set("old", old), replica_set("new", new)]

    assert rollout.new_size(deployment(replicas, surge, 1), sets, sets[1]) == expected


def test_old_pods_go_as_far_as_enough_are_available() -> None:
    one = deployment(10, 0, 2)
    old, new = replica_set("old", 8), replica_set("new", 2, available=2)

    assert rollout.most_to_shrink(one, [old], new) == 2
    assert rollout.old_shrunk(one, [old], new) == {"old": 6}
    starting = replica_set("new", 2, available=0)
    assert rollout.most_to_shrink(one, [old], starting) == 0
    assert rollout.old_shrunk(one, [old], starting) == {}


def test_pods_that_are_not_available_go_first_and_those_of_the_oldest() -> None:
    older, old = replica_set("older", 4, available=3, age=9), replica_set("old", 4, available=0, age=1)

    assert rollout.unhealthy_shrunk([old, older], 3) == {"older": 3, "old": 2}
    assert rollout.old_shrunk(deployment(6, 1, 0), [old, older], replica_set("new", 6)) == {"older": 1}


@pytest.mark.parametrize(
    ("replicas", "before", "sizes", "expected"),
    [
        (12, 10, {"new": 10}, {"new": 12}),
        (10, 5, {"b": 2, "a": 3}, {"a": 6, "b": 4}),
        (5, 10, {"a": 6, "b": 4}, {"a": 3, "b": 2}),
        (0, 10, {"a": 6, "b": 4}, {"a": 0, "b": 0}),
        (20, 15, {"c": 5, "b": 5, "a": 5}, {"c": 7, "b": 7, "a": 6}),
    ],
)
def test_what_is_scaled_while_it_is_rolled_out_keeps_its_proportions(
    replicas: int, before: int, sizes: dict[str, int], expected: dict[str, int]
) -> None:
    sets = [
        replica_set(name, count, most=before, age=index) for index, (name, count) in enumerate(sizes.items())
    ]

    assert rollout.proportional(deployment(replicas, 0, 1), sets) == expected


def test_a_template_is_known_by_what_it_says_and_not_by_how() -> None:
    one = deployment(1)
    template = one["spec"]["template"]
    labels = {"app": "a", rollout.HASH_LABEL: "x"}
    same = {"metadata": {"labels": labels, "annotations": {}}, "spec": {**template["spec"], "volumes": []}}
    other = {**template, "spec": {"containers": [{"name": "other"}]}}
    sets = [
        {**replica_set(name, 1), "spec": {"replicas": 1, "template": found}}
        for name, found in (("other", other), ("same", same))
    ]

    new, old = rollout.split(one, sets)

    assert new is sets[1]
    assert old == [sets[0]]
    assert rollout.template_hash(template, 0) == rollout.template_hash(same, 0)
    digests = {rollout.template_hash(template, 0), rollout.template_hash(template, 1)}
    assert len(digests | {rollout.template_hash(other, 0)}) == 3
    assert all(set(digest) <= set("bcdfghjklmnpqrstvwxz2456789") for digest in digests)
