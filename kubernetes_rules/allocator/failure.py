"""The error of an allocation that cannot be decided, as against one that merely does not fit."""

from __future__ import annotations

from kubernetes_rules.errors import RuleError


class AllocationFailed(RuleError):
    """Claims cannot be allocated because an object is wrong or cannot be judged; the scheduler reports it.

    A retry helps where the object changes: a pool that is being updated, a class that is created.
    """


class PoolInvalid(AllocationFailed):
    """The claims do not fit on one node, and a pool there is invalid: other nodes may have room."""
