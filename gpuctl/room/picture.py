"""Shows rooms and plans of moves to people: plain columns, with what they mean above and below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.cli.output import columns, some_of
from gpuctl.room.defragment import Landing, Move, Plan
from gpuctl.room.rooms import MOVABLE, Leaving, NodeRoom, Policy, PolicyRooms, RoomAnswer

_NODES = 3
_NAMES = 4
_MOVES = 40

_WORDS: dict[Policy, str] = {
    "lower-priority": "lower priority",
    "movable": "movable",
    "any": "any",
}
_BUDGETS = "poddisruptionbudgets"


def room_text(answer: RoomAnswer, *, wide: bool) -> str:
    """The answer about one pod; ``wide`` shows all nodes and devices, else only the first are shown."""
    return "\n".join(_room_lines(answer, wide=wide))


def _room_lines(answer: RoomAnswer, *, wide: bool) -> Iterator[str]:
    yield f"pod {answer.namespace}/{answer.name}: {answer.summary}"
    for finding in answer.findings:
        yield f"- {finding.message}"
        if finding.remedy:
            yield f"  what helps: {finding.remedy}"
    rows = [row for policy in answer.policies for row in _rows(policy, answer.unread, wide=wide)]
    if rows:
        heads = ("who may go", "node", "pod", "priority", "since", "owner", "budget", "it would get")
        yield columns(heads, rows)
    for policy in answer.policies:
        if policy.why:
            may = f'pods with {MOVABLE}: "true"' if policy.policy == "movable" else _WORDS[policy.policy]
            yield f"{may}: {policy.why}"
        left = 0 if wide else len(policy.rooms) - _NODES
        if left > 0:
            yield f"{_WORDS[policy.policy]}: and {left} more nodes; -o wide shows all"
        if any(not room.exact for room in policy.rooms):
            yield f"{_WORDS[policy.policy]}: none can be left out, but a smaller set may exist"
    if answer.unread:
        yield f"not considered, because this user may not read them: {', '.join(answer.unread)}"


def _rows(policy: PolicyRooms, unread: Sequence[str], *, wide: bool) -> Iterator[tuple[str, ...]]:
    for number, room in enumerate(policy.rooms if wide else policy.rooms[:_NODES]):
        for index, pod in enumerate(room.pods):
            first = not index
            yield (
                _WORDS[policy.policy] if first and not number else "",
                room.node if first else "",
                str(pod),
                str(pod.priority),
                pod.since or "-",
                pod.owner or "-",
                _budget(pod, unread),
                _gains(room, wide=wide) if first else "",
            )


def _gains(room: NodeRoom, *, wide: bool) -> str:
    names = some_of([one.rpartition("/")[2] for one in room.gains], None if wide else _NAMES)
    return f"{names}; a budget forbids {room.refused} now" if room.refused else names


def _budget(pod: Leaving, unread: Sequence[str]) -> str:
    if _BUDGETS in unread:
        return "?"
    return ", ".join(f"{one.name} allows {one.allows}" for one in pod.budgets) or "-"


def plan_text(plan: Plan, unread: Sequence[str], *, wide: bool) -> str:
    """The moves, what they free, and who is not moved."""
    return "\n".join(_plan_lines(plan, unread, wide=wide))


def _plan_lines(plan: Plan, unread: Sequence[str], *, wide: bool) -> Iterator[str]:
    if plan.steps:
        yield f"{_counted(plan.moves, 'move')} would free {_counted(len(plan.steps), plan.what)}"
        rows = [
            (
                f"{step.node}: {some_of([one.rpartition('/')[2] for one in step.gains], _NAMES)}"
                if not number
                else "",
                *_move_row(move, unread, wide=wide),
            )
            for step in plan.steps
            for number, move in enumerate(step.moves)
        ]
        heads = ("frees", "pod", "owner", "budget", "from", "would fit", "but may go to")
        yield columns(heads, rows if wide else rows[:_MOVES])
        if not wide and len(rows) > _MOVES:
            yield f"and {len(rows) - _MOVES} more moves; -o wide shows all"
        yield "the scheduler chooses where a new pod goes; --yes checks after each move whether it helped"
    else:
        yield f"no move would free another {plan.what}"
    for one in plan.staying:
        yield f"not moved: {one.pods} {one.why}"
    if unread:
        yield f"not considered, because this user may not read them: {', '.join(unread)}"


def _move_row(move: Move, unread: Sequence[str], *, wide: bool) -> tuple[str, ...]:
    return (
        str(move.pod),
        move.pod.owner or "-",
        _budget(move.pod, unread),
        some_of([one.rpartition("/")[2] for one in move.devices], None if wide else _NAMES),
        _landings(move.fits, wide=wide),
        _landings(move.spoils, wide=wide) or "-",
    )


def _landings(landings: Sequence[Landing], *, wide: bool) -> str:
    """The first place with its devices, and how many other nodes there are; ``wide`` names all."""
    shown = landings if wide else landings[:1]
    text = ", ".join(
        f"{one.node} ({some_of([name.rpartition('/')[2] for name in one.devices], _NAMES)})" for one in shown
    )
    left = len(landings) - len(shown)
    return f"{text}, or {_counted(left, 'other node')}" if left > 0 else text


def _counted(number: int, what: str) -> str:
    plural = what.replace("device of", "devices of") if what.startswith("device of") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
