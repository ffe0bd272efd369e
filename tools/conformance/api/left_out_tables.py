"""What the embedded cluster leaves out on purpose, from the lists in the code."""

from __future__ import annotations

from kubernetes_rules.validation import kinds
from tools.conformance.api.left_out import LEFT_OUT
from tools.docs.lookup.marked import table


def answer_table() -> str:
    """What the API server answers otherwise than kube-apiserver, and why."""
    return table(("what differs", "why"), ((one.what, one.why) for one in LEFT_OUT))


def checked_table() -> str:
    """What the API server checks of each kind."""
    return table(("kind", "checked"), kinds.CHECKED)
