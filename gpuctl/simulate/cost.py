"""What the GPU-hours of a simulation cost, and how much of that was for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.simulate.results import Result


@dataclass(frozen=True, slots=True)
class Cost:
    """In the currency of ``gpu_hour``, what one GPU-hour costs.

    ``idle`` is for GPU-hours in which nobody had the GPU; ``without_work`` for these and for those in which
    it was in use but not busy, None where the workload does not say how busy its pods are.
    """

    gpu_hour: float
    total: float
    idle: float
    without_work: float | None


def cost_of(result: Result, gpu_hour: float) -> Cost:
    """The cost of all GPUs for the time that a simulation covers."""
    idle = result.gpu_hours - result.hours_in_use
    worked = result.busy_hours
    return Cost(
        gpu_hour,
        result.gpu_hours * gpu_hour,
        idle * gpu_hour,
        None if worked is None else (result.gpu_hours - worked) * gpu_hour,
    )
