"""The end of a run is compared with its start, and what grew, stayed or failed is named."""

from collections import Counter
from dataclasses import replace

from tools.soak.judgement import Mark, Process, Sample, compared_memory, grown, left_over, may_fail

NAME = "kubeletplugin"
FAULT = Mark("lost", "0000:1b:00.0", 100, 120)


def samples(*memory_mib: float, pid: int = 1) -> list[Sample]:
    """A sample each 100 claims of an instance."""
    return [Sample({NAME: Process(pid, mib)}, number * 100) for number, mib in enumerate(memory_mib)]


def test_what_is_left_over_and_what_is_missing_are_named() -> None:
    before = {"GPUs": Counter(["0: MIG off"]), "CDI specs": Counter[str]()}
    after = {"GPUs": Counter(["0: MIG on"]), "CDI specs": Counter(["claim-a", "claim-b", "claim-b"])}

    assert list(left_over(before, after)) == [
        "CDI specs: left over: claim-a, claim-b (2 times)",
        "GPUs: left over: 0: MIG on",
        "GPUs: missing: 0: MIG off",
    ]


def test_memory_is_compared_with_that_after_the_first_thousand_claims() -> None:
    warming_up, flat, leaking = [50.0] * 10, [60.0] * 10, [60.0] * 5 + [64.0] * 5

    assert compared_memory(samples(*warming_up, *flat), NAME) == (60, 60)
    assert list(grown(samples(*warming_up, *flat), [NAME])) == []
    (told,) = grown(samples(*warming_up, *leaking), [NAME])
    assert told == "memory of the kubeletplugin grew from 60.0 to 64.0 MiB"


def test_a_pod_may_fail_only_if_its_gpu_had_a_fault_while_it_was_there() -> None:
    gpus = frozenset({"0000:1b:00.0"})

    assert may_fail([FAULT], gpus, 110, 300)
    assert may_fail([replace(FAULT, ended=None)], gpus, 400, 500)
    assert not may_fail([FAULT], gpus, 121, 300)
    assert not may_fail([FAULT], frozenset({"0000:43:00.0"}), 110, 300)
