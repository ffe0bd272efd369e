"""The written allocation cases, one for each rule."""

from __future__ import annotations

from tools.conformance.allocation import (
    cases_backtracking,
    cases_capacity,
    cases_counters,
    cases_pools,
    cases_requests,
)

CASES = (
    *cases_pools.CASES,
    *cases_backtracking.CASES,
    *cases_requests.CASES,
    *cases_counters.CASES,
    *cases_capacity.CASES,
)
