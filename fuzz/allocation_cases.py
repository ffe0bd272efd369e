"""The written allocation cases, one for each rule."""

from __future__ import annotations

from fuzz import (
    allocation_cases_backtracking,
    allocation_cases_capacity,
    allocation_cases_counters,
    allocation_cases_pools,
    allocation_cases_requests,
)

CASES = (
    *allocation_cases_pools.CASES,
    *allocation_cases_backtracking.CASES,
    *allocation_cases_requests.CASES,
    *allocation_cases_counters.CASES,
    *allocation_cases_capacity.CASES,
)
