"""The kubelet's pod-resources refuse who asks too often, as pkg/kubelet/apis/grpc/ratelimit.go does."""

from __future__ import annotations

from envtest.embedded.node.pod_resources import CALLS_A_SECOND, CALLS_AT_ONCE, RateLimit


def test_ten_calls_at_once_are_answered_and_then_a_hundred_a_second() -> None:
    now = [0.0]
    limit = RateLimit(lambda: now[0])

    assert [limit.allows() for _ in range(12)] == [True] * int(CALLS_AT_ONCE) + [False] * 2
    now[0] += 1.5 / CALLS_A_SECOND
    assert [limit.allows() for _ in range(2)] == [True, False]
    now[0] += 3600
    assert sum(limit.allows() for _ in range(100)) == CALLS_AT_ONCE
