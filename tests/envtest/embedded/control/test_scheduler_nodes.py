"""Which nodes a pod may be on, and the words for why it is on none."""

from __future__ import annotations

from envtest.embedded.control.scheduler import fit_error


def test_reasons_are_counted_and_sorted_as_the_real_scheduler_does_it() -> None:
    helpless = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    message = fit_error(3, "", ["b", "a", "b"])
    assert message == f"0/3 nodes are available: 1 a, 2 b. {helpless}"
    assert fit_error(3, "all the same", ()) == f"0/3 nodes are available: all the same. {helpless}"
