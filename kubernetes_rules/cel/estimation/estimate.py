"""Estimates what an expression costs at most, before it runs (cel-go, checker/cost.go).

Only upper bounds are computed, since Kubernetes uses no others. They end at ``UNBOUNDED``. They decide which
CustomResourceDefinitions are accepted, so the rules are followed to the letter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubernetes_rules.cel import syntax
from kubernetes_rules.cel.estimation.calls import Argument, Estimate, library_estimate
from kubernetes_rules.cel.estimation.declared import Declared
from kubernetes_rules.cel.estimation.sizes import UNBOUNDED, UNKNOWN, Size, fixed, plus, scaled, times
from kubernetes_rules.cel.program import Checked
from kubernetes_rules.cel.types import Overload, Type, Uint


class _Path:
    """The way from a variable to a value: its name, then fields, ``@items``, ``@keys`` and ``@values``.

    It is a slice of Go: paths that begin equally may share memory, and extending one then overwrites a step
    of another. The estimates of Kubernetes depend on this.
    """

    __slots__ = ("_array", "_length")

    def __init__(self, array: list[str], length: int) -> None:
        self._array = array
        self._length = length

    def then(self, step: str) -> _Path:
        """The path with one more step (Go: append)."""
        array = self._array
        if self._length == len(array):
            array = array + [""] * max(self._length, 1)
        array[self._length] = step
        return _Path(array, self._length + 1)

    def steps(self) -> list[str]:
        """The steps, none if the value is not below a variable."""
        return self._array[: self._length]


_ACCUMULATORS = ("@result", "__result__")
_SCALARS = frozenset(
    ("bool", "double", "int", "uint", "google.protobuf.Duration", "google.protobuf.Timestamp")
)
_COMPARED = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_LIST_UNITS, _MAP_UNITS, _MESSAGE_UNITS = 10, 30, 40


def estimated_cost(checked: Checked, root: Declared) -> int:
    """The units that an expression costs at most; ``root`` declares the value of its variables."""
    return _Coster(checked, root).cost(checked.tree)


@dataclass(frozen=True, slots=True)
class _Entries:
    """The sizes of the keys and the values of a list or a map."""

    kind: str
    keys: Size
    values: Size

    def union(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.kind, self.keys.union(other.keys), self.values.union(other.values))


@dataclass(frozen=True, slots=True)
class _Local:
    """A variable of a macro."""

    path: _Path
    size: Size | None
    entries: _Entries | None = None


@dataclass(slots=True)
class _Coster:
    checked: Checked
    root: Declared
    _paths: dict[int, _Path] = field(default_factory=dict)
    _sizes: dict[int, Size] = field(default_factory=dict)
    _entries: dict[int, _Entries] = field(default_factory=dict)
    _locals: dict[str, list[_Local]] = field(default_factory=dict)

    def cost(self, node: syntax.Node) -> int:
        """The units of a part; its path and size are noted."""
        match node:
            case syntax.Ident():
                local = self._local(node.name)
                self._paths[id(node)] = _Path([node.name], 1) if local is None else local.path
                return 1
            case syntax.Select():
                return self._select(node)
            case syntax.Call():
                return self._call(node)
            case syntax.ListLiteral():
                return self._list(node)
            case syntax.MapLiteral():
                return self._map(node)
            case syntax.MessageLiteral():
                return plus(_MESSAGE_UNITS, *(self.cost(value) for _, value, _ in node.fields))
            case syntax.Fold():
                is_bind = node.variable == syntax.UNUSED
                return self._bind(node) if is_bind else self._fold(node)
        return 0

    def estimated_size(self, path: list[str]) -> Size | None:
        """The size that the declaration gives for the value at a path, None if there is no such value."""
        if not path:
            return None
        place: Declared | None = self.root
        for name in path[1:]:
            if place is None:
                return None
            if name in ("@items", "@values"):
                place = place.element
            elif name == "@keys":
                place = place.key
            else:
                place = place.fields.get(name)
        return None if place is None else Size(0, place.most_elements)

    def _kind(self, node: syntax.Node) -> Type:
        return self.checked.checker.final(node.type)

    def _local(self, name: str) -> _Local | None:
        found = self._locals.get(name)
        return found[-1] if found else None

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _path(self, node: syntax.Node) -> _Path:
        if isinstance(node, syntax.Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(id(node)) or _Path([], 0)

    def _select(self, node: syntax.Select) -> int:
        if node.constant is not None:
            self._paths[id(node)] = _Path([node.constant.name], 1)
            return 1
        units = self.cost(node.operand)
        if node.test_only:
            return units
        self._paths[id(node)] = self._path(node.operand).then(node.field)
        kind = self._kind(node.operand).name
        return plus(units, 1) if kind == "map" or self.checked.checker.is_object(kind) else units

    def _size(self, node: syntax.Node) -> Size | None:
        known = self._sizes.get(id(node)) or _literal_size(node)
        if known is not None:
            return known
        declared = self.estimated_size(self._path(node).steps())
        if declared is not None:
            self._sizes[id(node)] = declared
            return declared
        if _is_scalar(self._kind(node)):
            return fixed(1)
        local = self._local(node.name) if isinstance(node, syntax.Ident) else None
        return None if local is None else local.size

    def _known_size(self, node: syntax.Node) -> Size:
        return self._size(node) or UNKNOWN

    def _entries_of(self, node: syntax.Node) -> _Entries | None:
        found = self._entries.get(id(node))
        if found is None and isinstance(node, syntax.Ident):
            local = self._local(node.name)
            return None if local is None else local.entries
        return found

    def _note(self, node: syntax.Node, size: Size | None, entries: _Entries | None) -> None:
        if size is not None:
            self._sizes[id(node)] = size
        if entries is not None:
            self._entries[id(node)] = entries

    def _list(self, node: syntax.ListLiteral) -> int:
        units = plus(_LIST_UNITS, *map(self.cost, node.elements))
        self._note(node, None, _Entries("list", fixed(1), self._union(node.elements)))
        return units

    def _map(self, node: syntax.MapLiteral) -> int:
        units = plus(
            _MAP_UNITS, *(self.cost(part) for key, value, _ in node.entries for part in (key, value))
        )
        keys = [key for key, _, _ in node.entries]
        values = [value for _, value, _ in node.entries]
        self._note(node, None, _Entries("map", self._union(keys), self._union(values)))
        return units

    def _union(self, nodes: list[syntax.Node]) -> Size:
        if not nodes:
            return fixed(0)
        sizes = [self._known_size(node) for node in nodes]
        return Size(min(size.least for size in sizes), max(size.most for size in sizes))

    def _push_item(self, name: str, items: syntax.Node, *, wants_key: bool | None) -> None:
        """A variable of a loop: the key, the value, or of a single variable what the container gives."""
        entries, path = self._entries_of(items), self._path(items)
        is_list = (entries.kind if entries else self._kind(items).name) == "list"
        key = not is_list if wants_key is None else wants_key
        steps = ("@indices", "@items") if is_list else ("@keys", "@values")
        step = steps[0 if key else 1]
        size = None if entries is None else entries.keys if key else entries.values
        self._push(name, _Local(path.then(step), size))

    def _fold(self, node: syntax.Fold) -> int:
        units = plus(self.cost(node.items), self.cost(node.initial))
        initial = _Local(self._path(node.initial), self._size(node.initial), self._entries_of(node.initial))
        self._push(node.accumulator, initial)
        if node.second:
            self._push_item(node.variable, node.items, wants_key=True)
            self._push_item(node.second, node.items, wants_key=False)
        else:
            self._push_item(node.variable, node.items, wants_key=None)
        each = plus(self.cost(node.condition), self.cost(node.step))
        self._locals[node.variable].pop()
        if node.second:
            self._locals[node.second].pop()
        units = plus(units, self.cost(node.result))
        self._locals[node.accumulator].pop()
        count = self._known_size(node.items)
        if isinstance(node.initial, syntax.Literal):
            self._note(node, self._size(node.initial), None)
        elif isinstance(node.initial, syntax.ListLiteral | syntax.MapLiteral):
            self._note(node, count, self._entries_of(node.step))
        return plus(units, times(count.most, each))

    def _bind(self, node: syntax.Fold) -> int:
        units = plus(self.cost(node.items), self.cost(node.initial))
        bound = _Local(self._path(node.initial), self._size(node.initial), self._entries_of(node.initial))
        self._push(node.accumulator, bound)
        units = plus(units, self.cost(node.result))
        self._locals[node.accumulator].pop()
        self._note(node, self._size(node.result), self._entries_of(node.result))
        return units

    def _call(self, node: syntax.Call) -> int:
        costs = [self.cost(argument) for argument in node.arguments]
        if node.function == "dyn":
            self._note(node, self._size(node.arguments[0]), self._entries_of(node.arguments[0]))
            return plus(costs[0], 1)
        units = 0 if node.target is None else self.cost(node.target)
        target = None if node.target is None else self._argument(node.target)
        arguments = [self._argument(argument) for argument in node.arguments]
        if node.function in ("_&&_", "_||_"):
            self._note(node, self._size(node), None)
            return plus(*costs)
        most, size = 0, None
        for overload in node.overloads or (None,):
            estimate = self._overload(node, overload, target, arguments)
            most = max(most, estimate.units)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if (
                node.function == "_[_]"
                and overload is not None
                and overload.parameters[0].name != "optional_type"
            ):
                entries, path = self._entries_of(node.arguments[0]), self._path(node.arguments[0])
                size = None if entries is None else entries.values
                is_list = overload.parameters[0].name == "list"
                self._paths[id(node)] = path.then("@items" if is_list else "@values")
            size = size or self._size(node)
        self._note(node, size, None)
        if node.function == "_?_:_":
            return plus(costs[0], max(costs[1], costs[2]))
        return plus(units, most, *costs)

    def _argument(self, node: syntax.Node) -> Argument:
        path = self._path(node).steps()
        if path and path[0] in _ACCUMULATORS:
            path = []
        size = self._size(node)
        return Argument(
            node, self._kind(node), size, size or self.estimated_size(path) or UNKNOWN, self._item(path, node)
        )

    def _item(self, path: list[str], node: syntax.Node) -> tuple[Type, Size] | None:
        """The type and the size of the elements of a list, or of the keys of a map."""
        parameters = self._kind(node).parameters
        if not parameters:
            return None
        declared = self.estimated_size([*path, "@items"]) if path else None
        return parameters[0], declared or UNKNOWN

    def _overload(
        self, node: syntax.Call, overload: Overload | None, target: Argument | None, arguments: list[Argument]
    ) -> Estimate:
        """The units of the call itself, without its arguments."""
        if overload is not None:
            found = library_estimate(overload, target, arguments)
            if found is not None:
                return found
        name = node.function
        given = [] if overload is None else [kind.name for kind in overload.parameters]
        known = [UNKNOWN if argument.size is None else argument.size for argument in arguments]
        if name == "_?_:_":
            one, other = (self._entries_of(part) for part in node.arguments[1:])
            self._note(node, None, None if one is None else one.union(other))
            return Estimate(0, known[1].union(known[2]))
        if name == "_+_" and given[0] in ("string", "bytes", "list"):
            first, second = (self._entries_of(part) for part in node.arguments)
            self._note(node, None, None if first is None else first.union(second))
            total = known[0].plus(known[1])
            return Estimate(1 if given[0] == "list" else scaled(total.most, 0.1), total)
        if name in ("_==_", "_!=_") or (name in _COMPARED and given[0] in ("string", "bytes")):
            return Estimate(scaled(min(known[0].most, known[1].most), 0.1))
        return _standard_estimate(name, given, target, known)


def _standard_estimate(name: str, given: list[str], target: Argument | None, known: list[Size]) -> Estimate:
    """The units of a standard function that traverses its arguments; one unit for the others."""
    subject = None if target is None else UNKNOWN if target.size is None else target.size
    match name:
        case "format" if subject is not None:
            return Estimate(scaled(subject.most, 0.1))
        case "bytes" if given == ["string"]:
            return Estimate(scaled(known[0].most, 0.1), Size(known[0].least, known[0].most * 4 & UNBOUNDED))
        case "string" if given == ["bytes"]:
            return Estimate(scaled(known[0].most, 0.1), Size(known[0].least // 4, known[0].most))
        case "strings.quote":
            longest = Size(known[0].least + 2, (known[0].most * 2 + 2) & UNBOUNDED)
            return Estimate(scaled(known[0].most, 0.1), longest)
        case "startsWith" | "endsWith":
            return Estimate(scaled(known[0].most, 0.1))
        case "@in" if given[1] == "list":
            return Estimate(scaled(known[1].most, 1))
        case "matches":
            text, pattern = (known[0], known[1]) if subject is None else (subject, known[0])
            return Estimate(times(scaled(plus(text.most, 1), 0.1), scaled(pattern.most, 0.25)))
        case "contains" if subject is not None and given[0] == "string":
            return Estimate(times(scaled(subject.most, 0.1), scaled(known[0].most, 0.1)))
    return Estimate(1)


def _is_scalar(kind: Type) -> bool:
    if kind.name == "optional_type":
        return _is_scalar(kind.parameters[0])
    return kind.name in _SCALARS


def _literal_size(node: syntax.Node) -> Size | None:
    match node:
        case syntax.Literal(value=str() | bytes() as text):
            return fixed(len(text))
        case syntax.Literal(value=bool() | int() | float() | Uint() | None):
            return fixed(1)
        case syntax.ListLiteral():
            return fixed(len(node.elements))
        case syntax.MapLiteral():
            return fixed(len(node.entries))
    return None
