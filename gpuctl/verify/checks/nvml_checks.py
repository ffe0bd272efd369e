"""The checks of NVML, in their order: what it promises, answers, refuses and reports. They only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from driver.hardware.gpu import Gpu
from driver.nvml.api import GPU_CALLS, Code, NoMemoryLimits, NotSupported, Nvml, NvmlCallFailed, NvmlDevice
from driver.nvml.deadline import DEADLINE_SECONDS, LONG_CALLS
from driver.nvml.health.calls import EventKind
from driver.nvml.pci_address import PciAddress
from driver.process.privileges import CAP_SYS_ADMIN, rights_of
from gpuctl.doctor.check import Check, Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.verify.checks.mig_tables import MIG_TABLES
from gpuctl.verify.checks.nvml_answers import (
    NO_GPU,
    GpuAnswers,
    Question,
    ask_for_check,
    lines_by_gpu,
    read_twice,
    refused_questions,
)
from gpuctl.verify.contract.run import CALL_SECONDS, ClauseResult, Outcome, check_contract
from gpuctl.verify.subject import Subject

_SEND = "send this report with an issue, so that the driver and its fake learn it"
_LOOK = "look for Xid and NVRM messages in the kernel log; a GPU that hangs or is lost needs a reset"

# The root group never has limits.
_ROOT_CGROUP = "/sys/fs/cgroup"

_OUTCOMES = {
    "kept": "kept",
    "kept the second time": "kept only the second time",
    "broken": "broken",
    "hung": "with a call that hangs",
    "nothing to check": "without anything to check",
    "not run": "not run",
}

_CHANGES = sorted(GPU_CALLS[method] for method in (*LONG_CALLS, "set_compute_mode", "set_memory_limits"))
"""The calls that change a GPU, which need CAP_SYS_ADMIN."""


def find_contract(subject: Subject, call_seconds: float = CALL_SECONDS) -> Finding:
    """What the contract check finds if each call may take so long."""
    inventory = require(subject.seen.inventory)
    # A call that hung when the node was read still has its session.
    problems = [*(one.problems for one in inventory.gpus), *(one.problems for one in inventory.unread)]
    has_hung = any(problem.reason == "hung" for some in problems for problem in some)
    results = check_contract(subject.open_nvml, call_seconds=call_seconds, may_be_alone=not has_hung)
    numbers, broken = _numbers(results), _lines(results, "broken")
    for hung in _lines(results, "hung"):
        return fail(f"a call of NVML hangs: {hung}", _LOOK, [*broken, numbers])
    if broken:
        promises = [f"{one.clause.name}: {one.clause.promise}" for one in results if one.outcome == "broken"]
        return fail(
            f"NVML breaks {counted(len(promises), 'promise')} that the driver relies on",
            f"{_LOOK}; else {_SEND}",
            [*broken, *(f"promised is: {one}" for one in promises), numbers],
        )
    nothing, flaky = _lines(results, "nothing to check"), _lines(results, "kept the second time")
    if flaky:
        return warn(f"NVML keeps its contract, but not at once: {numbers}", _SEND, [*flaky, *nothing])
    return ok(f"NVML keeps its contract: {numbers}", nothing)


def _lines(results: Iterable[ClauseResult], outcome: Outcome) -> list[str]:
    """What the clauses with an outcome say, each line with the clause's name."""
    return [f"{one.clause.name}: {line}" for one in results if one.outcome == outcome for line in one.lines]


def _numbers(results: Iterable[ClauseResult]) -> str:
    """How many promises were kept, broken and so on, in words."""
    counts = Counter(one.outcome for one in results)
    parts = [f"{count} {_OUTCOMES[outcome]}" for outcome, count in counts.items()]
    return f"of {counts.total()} promises {', '.join(parts)}"


def find_answers(subject: Subject, deadline_seconds: float = DEADLINE_SECONDS) -> Finding:
    """What the check of the answers finds if each call may take so long."""
    inventory = require(subject.seen.inventory)
    if not inventory.gpus and not inventory.unread:
        return skipped(NO_GPU)
    found = (
        ask_for_check(subject, lambda _, device: read_twice(device), deadline_seconds)
        if inventory.gpus
        else {}
    )
    serious = [
        f"{one.pci or 'a GPU'}: NVML does not identify it: {'; '.join(why.message for why in one.problems)}"
        for one in inventory.unread
    ]
    minor: list[str] = []
    answered: dict[PciAddress, str] = {}
    for pci, answers in found.items():
        if isinstance(answers, NvmlCallFailed):
            serious.append(f"{pci}: {answers.what}")
            continue
        for trouble in answers.troubles:
            words = f"{pci}: {trouble.words}{_needed_for(trouble.question)}"
            (serious if trouble.is_serious else minor).append(words)
        answered[pci] = _answers_in_words(answers)
    lines = lines_by_gpu(answered, len(found))
    gpus = counted(len(found) + len(inventory.unread), "GPU")
    if serious:
        what = f"{counted(len(serious) + len(minor), 'answer')} of {gpus} wrong or missing"
        return fail(what, f"{_LOOK}; else {_SEND}", [*serious, *minor, *lines])
    if minor:
        what = f"{counted(len(minor), 'answer')} of {gpus} unknown or missing, without which the driver works"
        return warn(what, _SEND, [*minor, *lines])
    return ok(f"{gpus} answered everything twice, with the same constant values", lines)


def _needed_for(question: Question) -> str:
    return f" (needed: {question.meaning})" if question.meaning else ""


def _answers_in_words(answers: GpuAnswers) -> str:
    """How many questions a GPU answers, and which it does not."""
    words = f"answers {counted(len(answers.answered), 'question')}"
    for what, questions in (("not supported", answers.unsupported), ("not permitted", answers.refused)):
        if questions:
            words += f"; {what}: {', '.join(map(str, questions))}"
    return words


def find_permissions(subject: Subject, deadline_seconds: float = DEADLINE_SECONDS) -> Finding:
    """What the check of permissions finds if each call may take so long."""
    found = ask_for_check(subject, lambda _, device: refused_questions(device), deadline_seconds)
    errors = {pci: one for pci, one in found.items() if isinstance(one, NvmlCallFailed)}
    handles = [one for one in errors.values() if one.code == Code.NO_PERMISSION]
    if len(errors) == len(found) and not handles:
        return skipped("no GPU answers")
    refused = {question for one in found.values() if isinstance(one, tuple) for question in one}
    user, is_admin = _user()
    rest = [f"{pci}: not asked everything: {one.what}" for pci, one in errors.items()]
    rest.append(f"not tried, since they change a GPU: {', '.join(_CHANGES)}")
    if not is_admin:
        rest[-1] += "; NVML refuses them to a process without CAP_SYS_ADMIN"
    if refused or handles:
        lines = [f"{one}{_needed_for(one) or ' (only shown)'}" for one in sorted(refused, key=str)]
        needs = handles or any(one.decides for one in refused)
        words = f"NVML refuses {counted(len(refused) + len(handles), 'call')} to {user}"
        finding = fail if needs else warn
        way_out = "run this as root of the node, or in a privileged container"
        return finding(words, way_out, [*lines, *rest])
    return ok(f"{user} may make every call of NVML that only reads", rest)


def _user() -> tuple[str, bool]:
    """As whom this process runs, in words, and whether it has the capability that NVML asks for."""
    rights = rights_of(Path("/proc/self"))
    if rights is None:
        return "this process", False
    is_admin = bool(rights.effective & 1 << CAP_SYS_ADMIN)
    return f"user {rights.users[1]} {'with' if is_admin else 'without'} CAP_SYS_ADMIN", is_admin


def find_events(subject: Subject, deadline_seconds: float = DEADLINE_SECONDS) -> Finding:
    """What the check of events finds if each call may take so long."""
    found = ask_for_check(subject, _kinds_of_events, deadline_seconds)
    guests = {gpu.pci for gpu in subject.gpus if gpu.virtualization == "vgpu"}
    failed = [
        f"{pci}: {one.what}"
        for pci, one in found.items()
        if isinstance(one, NvmlCallFailed) and not isinstance(one, NotSupported)
    ]
    kinds: dict[PciAddress, frozenset[EventKind]] = {
        pci: one if isinstance(one, frozenset) else frozenset() for pci, one in found.items()
    }
    lines = lines_by_gpu(
        {pci: ", ".join(sorted(one)) or "no events" for pci, one in kinds.items()}, len(found)
    )
    without_xids = [pci for pci, one in kinds.items() if "xid" not in one and pci not in guests]
    if failed:
        return fail(f"events of {counted(len(failed), 'GPU')} cannot be watched", _LOOK, [*failed, *lines])
    if without_xids:
        return warn(
            f"{counted(len(without_xids), 'GPU')} of {len(found)} without XID events",
            f"the driver notices faults of such a GPU only when it checks it; {_SEND}",
            lines,
        )
    if not any(kinds.values()):
        return skipped("a guest's vGPUs report no events")
    return ok(f"{counted(len(found), 'GPU')} can be watched for XIDs", lines)


def _kinds_of_events(nvml: Nvml, device: NvmlDevice) -> frozenset[EventKind]:
    """The kinds of events for which a GPU could be registered."""
    uuid = device.uuid()
    events = nvml.watch_events([device])
    try:
        # It returns at once. An event that comes just now is nobody else's: each set gets its own copy.
        events.wait(0)
        return events.kinds().get(uuid, frozenset())
    finally:
        events.close()


def find_memory_limits(subject: Subject, deadline_seconds: float = DEADLINE_SECONDS) -> Finding:
    """What the check of memory limits finds if each call may take so long."""
    if not require(subject.seen.inventory).cgroup_v2:
        return skipped("the node has no cgroup v2, by which memory limits go")
    found = ask_for_check(subject, lambda _, device: device.memory_limits(_ROOT_CGROUP), deadline_seconds)
    known = {gpu.pci: gpu for gpu in subject.gpus}
    words = {pci: _support(known[pci], answer) for pci, answer in found.items()}
    lines = lines_by_gpu({pci: text for pci, (_, text) in words.items()}, len(found))
    states = [state for state, _ in words.values()]
    if "failed" in states:
        gpus = counted(states.count("failed"), "GPU")
        return warn(f"it is unknown whether the memory of {gpus} can be limited", _SEND, lines)
    if "yes" not in states:
        return skipped(f"NVML limits the memory of no GPU: {'; '.join(lines) or NO_GPU}")
    gpus = counted(states.count("yes"), "GPU")
    return ok(f"NVML can limit the memory of control groups on {gpus} of {len(states)}", lines)


def _support(gpu: Gpu, answer: object) -> tuple[str, str]:
    """Whether a GPU's memory can be limited (yes, no, failed), and how that is known."""
    if not isinstance(answer, NvmlCallFailed) or isinstance(answer, NoMemoryLimits):
        if gpu.memory_limits is False:
            return "failed", "limits are supported now, and were not when the node was read"
        return "yes", "limits are supported"
    if answer.code == Code.FUNCTION_NOT_FOUND:
        return "no", "the NVIDIA driver is older than R615"
    if not isinstance(answer, NotSupported):
        return "failed", answer.what
    # A driver may answer so for a group without limits, too. Then only setting some tells, which is left to
    # the reading of the node: driver.nvml.limits_probe.
    if gpu.memory_limits:
        return "yes", "limits are supported, and a group without limits is answered with NOT_SUPPORTED"
    return "no", "not supported by the GPU, in MIG mode, or in a vGPU guest"


_contract = check(
    "nvml-contract",
    "whether NVML keeps what the driver relies on: each promise in a session of its own, 30 s for each call",
    "it breaks a promise twice, or a call hangs; warns about a promise that is broken once",
)(find_contract)
_answers = check(
    "nvml-answers",
    "which NVML calls each GPU answers, which it does not support, and whether it answers twice the same",
    (
        "an answer is missing without which the GPU cannot be offered, or one changes that cannot; warns "
        "about other missing answers, and about calls that fail only once"
    ),
)(find_answers)
_permissions = check(
    "nvml-permissions",
    "which NVML calls this user may not make, and which of them the driver needs",
    "the driver cannot offer GPUs without one of them; warns about the others",
)(find_permissions)
_events = check(
    "nvml-events",
    "for which kinds of events each GPU can be registered",
    "a GPU fails or hangs; warns about GPUs without XID events",
)(find_events)
_memory_limits = check(
    "memory-limits-support",
    "whether the NVIDIA driver can limit the memory of control groups, without setting a limit",
    "never; warns if it cannot be found out",
)(find_memory_limits)

NVML_CHECKS: tuple[Check[Subject], ...] = (
    _contract,
    _answers,
    _permissions,
    _events,
    MIG_TABLES,
    _memory_limits,
)
"""All checks of NVML, in their order."""
