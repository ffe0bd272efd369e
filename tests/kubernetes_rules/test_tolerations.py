"""Which tolerations cover which taints, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.taints import tolerated_seconds, untolerated_taint

Json = dict[str, Any]

SICK: Json = {"key": "sick", "value": "5", "effect": "NoSchedule"}


def test_the_first_taint_that_blocks_and_is_not_tolerated_is_told() -> None:
    told = {"key": "told", "effect": "None"}
    slow = {"key": "slow", "effect": "PreferNoSchedule"}
    gone = {"key": "gone", "effect": "NoExecute"}
    assert untolerated_taint([told, slow, SICK, gone], []) is SICK
    assert untolerated_taint([told, slow, SICK, gone], [{"key": "sick", "operator": "Exists"}]) is gone
    assert untolerated_taint([told, slow], []) is None


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}], 60),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0),
        ([{"operator": "Exists", "effect": "NoExecute"}], None),
        ([{"operator": "Exists"}], 0),
        ([{"operator": "Like", "key": "gone", "effect": "NoExecute"}], 0),
        (
            [
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9},
                {"key": "gone", "effect": "NoExecute", "tolerationSeconds": 5},
            ],
            5,
        ),
    ],
)
def test_a_taint_is_tolerated_as_long_as_the_shortest_toleration_says(
    tolerations: list[Json], seconds: int | None
) -> None:
    assert tolerated_seconds({"key": "gone", "effect": "NoExecute"}, tolerations) == seconds
