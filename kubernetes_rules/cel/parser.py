"""Parses the text of an expression into its tree (cel-go, parser/gen/CEL.g4).

Macros become folds (cel-go: parser/macro.go, ext/comprehensions.go, cel/library.go).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubernetes_rules.cel import syntax
from kubernetes_rules.cel.lexer import SyntaxInvalid, Token, literal_string, tokens_of
from kubernetes_rules.cel.syntax import Call, Fold, Ident, ListLiteral, Literal, MapLiteral, Node, Select
from kubernetes_rules.cel.types import Uint

_DEEPEST = 250
"""How deep a rule of the grammar may be nested in itself (cel-go: defaultMaxRecursionDepth)."""
_RESERVED = frozenset((
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while",
))  # fmt: skip
_RELATIONS = frozenset(("<", "<=", ">=", ">", "==", "!=", "in"))
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_OPERATORS = {"in": "@in", "==": "_==_", "!=": "_!=_"}

_INSERT = "cel.@mapInsert"
_NO_NAME = "argument must be a simple name"


def parse(text: str) -> Node:
    """The tree of an expression. Raises SyntaxInvalid for other text, RecursionError for deep nesting."""
    parser = _Parser(tokens_of(text))
    tree = parser.expression()
    parser.expect("end")
    return tree


def _operator_name(operator: str) -> str:
    """The name of the function behind a binary operator: ``_+_``."""
    return _OPERATORS.get(operator, f"_{operator}_")


class _Parser:
    """Recursive descent over the tokens; its methods are named after the rules of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depths: dict[str, int] = {}

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _kind(self, ahead: int = 0) -> str:
        place = self._position + ahead
        return self._tokens[place].kind if place < len(self._tokens) else "end"

    def _taken(self, *kinds: str) -> Token | None:
        token = self._tokens[self._position]
        if token.kind not in kinds:
            return None
        self._position += 1
        return token

    def expect(self, kind: str) -> Token:
        """The next token, which is consumed. Raises SyntaxInvalid when it is of another kind."""
        token = self._taken(kind)
        if token is None:
            found = self._next
            raise SyntaxInvalid(f"Syntax error: mismatched input '{found.text or '<EOF>'}'", found.start)
        return token

    def _end(self) -> int:
        return self._tokens[self._position - 1].end

    @contextmanager
    def _within(self, rule: str) -> Iterator[None]:
        before = self._depths.get(rule, 0)
        self._depths[rule] = before
        self._deeper(rule)
        try:
            yield
        finally:
            self._depths[rule] = before

    def _deeper(self, rule: str) -> None:
        self._depths[rule] += 1
        if self._depths[rule] > _DEEPEST:
            raise SyntaxInvalid(f"expression recursion limit exceeded: {_DEEPEST}")

    def expression(self) -> Node:
        with self._within("expr"):
            start = self._next.start
            condition = self._logical("||")
            mark = self._taken("?")
            if not mark:
                return condition
            # In the grammar only the last operand may itself be a conditional without parentheses.
            truthy = self._logical("||")
            self.expect(":")
            falsy = self.expression()
            return Call(
                "_?_:_", None, [condition, truthy, falsy], start=start, end=self._end(), at=mark.start
            )

    def _logical(self, operator: str) -> Node:
        start = self._next.start
        first = self._logical("&&") if operator == "||" else self._relation()
        if self._kind() != operator:
            return first
        at = self._next.start
        # A chain becomes one call with many terms, so that long chains are not nested deeply.
        terms = [first]
        while self._taken(operator):
            terms.append(self._logical("&&") if operator == "||" else self._relation())
        return Call(f"_{operator}_", None, terms, start=start, end=self._end(), at=at)

    def _relation(self) -> Node:
        with self._within("relation"):
            start = self._next.start
            left = self._calc(1)
            while operator := self._taken(*_RELATIONS):
                self._deeper("relation")
                with self._within("relation"):
                    right = self._calc(1)
                left = self._binary(operator, left, right, start)
            return left

    def _calc(self, lowest: int) -> Node:
        with self._within("calc"):
            start = self._next.start
            left = self._unary()
            while (precedence := _PRECEDENCE.get(self._kind(), 0)) >= lowest:
                operator = self._next
                self._position += 1
                self._deeper("calc")
                right = self._calc(precedence + 1)
                left = self._binary(operator, left, right, start)
            return left

    def _binary(self, operator: Token, left: Node, right: Node, start: int) -> Node:
        name = _operator_name(operator.kind)
        return Call(name, None, [left, right], start=start, end=self._end(), at=operator.start)

    def _unary(self) -> Node:
        start = self._next.start
        sign = self._kind()
        # In the grammar a minus right before a number belongs to the literal: -2^63 has no positive form.
        if sign not in ("!", "-") or (sign == "-" and self._kind(1) in ("int", "float")):
            return self._member()
        count = 0
        while self._taken(sign):
            count += 1
        operand = self._member()
        # Signs cancel out in pairs.
        if count % 2 == 0:
            return operand
        return Call(f"{sign}_", None, [operand], start=start, end=self._end(), at=start)

    def _member(self) -> Node:
        with self._within("member"):
            start = self._next.start
            node = self._primary()
            while True:
                at = self._next.start
                if self._taken("."):
                    node = self._dotted(node, start, at)
                elif self._taken("["):
                    name = "_[?_]" if self._taken("?") else "_[_]"
                    index = self.expression()
                    self.expect("]")
                    node = Call(name, None, [node, index], start=start, end=self._end(), at=at)
                else:
                    return node
                self._deeper("member")

    def _dotted(self, operand: Node, start: int, at: int) -> Node:
        optional = self._taken("?")
        name = self._taken("escaped") or self.expect("ident")
        field_name = name.text.strip("`")
        if optional:
            field = Literal(field_name, start=name.start, end=name.end, at=name.start)
            return Call("_?._", None, [operand, field], start=start, end=self._end(), at=at)
        opening = None if name.kind == "escaped" else self._taken("(")
        if not opening:
            return Select(operand, field_name, start=start, end=self._end(), at=at)
        arguments = self._arguments()
        call = Call(name.text, operand, arguments, start=start, end=self._end(), at=opening.start)
        return _expanded(call)

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self._taken(")"):
            return arguments
        arguments.append(self.expression())
        while self._taken(","):
            arguments.append(self.expression())
        self.expect(")")
        return arguments

    def _primary(self) -> Node:
        token = self._next
        if token.kind in ("ident", "."):
            return self._named()
        self._position += 1
        match token.kind:
            case "(":
                inner = self.expression()
                self.expect(")")
                return inner
            case "[":
                return self._list(token.start)
            case "{":
                return self._map(token.start)
        return self._literal(token)

    def _named(self) -> Node:
        start = self._next.start
        if (message := self._message()) is not None:
            return message
        dot = "." if self._taken(".") else ""
        token = self.expect("ident")
        name = token.text
        if name in _RESERVED:
            raise SyntaxInvalid(f"reserved identifier: {name}", start)
        opening = self._taken("(")
        if not opening:
            return Ident(dot + name, start=start, end=self._end(), at=token.start)
        arguments = self._arguments()
        return _expanded(Call(dot + name, None, arguments, start=start, end=self._end(), at=opening.start))

    def _message(self) -> syntax.MessageLiteral | None:
        # ``a.b{`` begins a message and ``a.b`` a name: only looking ahead tells which.
        ahead = 1 if self._kind() == "." else 0
        while (
            self._kind(ahead) == "ident" and self._kind(ahead + 1) == "." and self._kind(ahead + 2) == "ident"
        ):
            ahead += 2
        if self._kind(ahead) != "ident" or self._kind(ahead + 1) != "{":
            return None
        words = self._tokens[self._position : self._position + ahead + 1]
        self._position += ahead + 2
        fields: list[tuple[str, Node, bool]] = []
        while self._kind() not in ("}", ","):
            optional = self._taken("?") is not None
            name = (self._taken("escaped") or self.expect("ident")).text.strip("`")
            self.expect(":")
            fields.append((name, self.expression(), optional))
            if not self._taken(","):
                break
        else:
            self._taken(",")
        self.expect("}")
        name = "".join(word.text for word in words)
        at = words[-1].end
        return syntax.MessageLiteral(name, fields, start=words[0].start, end=self._end(), at=at)

    def _list(self, start: int) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        while self._kind() not in ("]", ","):
            if self._taken("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if not self._taken(","):
                break
        else:
            self._only_comma(bool(elements))
        self.expect("]")
        return ListLiteral(elements, frozenset(optional), start=start, end=self._end(), at=start)

    def _map(self, start: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while self._kind() not in ("}", ","):
            optional = self._taken("?") is not None
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if not self._taken(","):
                break
        else:
            self._only_comma(bool(entries))
        self.expect("}")
        return MapLiteral(entries, start=start, end=self._end(), at=start)

    def _only_comma(self, after_elements: bool) -> None:
        """Take the comma that may be alone in an empty list or map; the grammar has ``[,]``."""
        if not after_elements:
            self._taken(",")

    def _literal(self, token: Token) -> Node:
        text, start = token.text, token.start
        if token.kind == "-":
            token = self._next
            self._position += 1
            text = "-" + token.text
        value: object
        match token.kind:
            case "int":
                value = _integer(text, "int", start)
            case "uint":
                value = Uint(_integer(text[:-1], "uint", start))
            case "float":
                value = float(text)
                if math.isinf(value):
                    raise SyntaxInvalid("invalid double literal", start)
            case "string":
                value = _string(token)
            case "true" | "false":
                value = token.kind == "true"
            case "null":
                value = None
            case _:
                raise SyntaxInvalid(f"Syntax error: mismatched input '{token.text or '<EOF>'}'", token.start)
        return Literal(value, start=token.start, end=token.end, at=start)


def _string(token: Token) -> str | bytes:
    try:
        return literal_string(token.text)
    except SyntaxInvalid as error:
        raise SyntaxInvalid(error.issues[0][1], token.start) from error


def _integer(text: str, kind: str, at: int) -> int:
    lowest, highest = (-(2**63), 2**63 - 1) if kind == "int" else (0, 2**64 - 1)
    if len(text) <= 4000:
        number = int(text, 16) if "0x" in text else int(text)
        if lowest <= number <= highest:
            return number
    raise SyntaxInvalid(f"invalid {kind} literal", at)


def _expanded(call: Call) -> Node:
    """The expansion of a call of a macro; any other call itself.

    Raises SyntaxInvalid for a macro with invalid arguments.
    """
    expand = _MACROS.get((call.function, len(call.arguments), call.target is not None))
    node = expand(call) if expand else None
    if node is None:
        return call
    node.start, node.end = call.start, call.end
    waiting = [node]
    # The parts that the macro made lie where it was called.
    while waiting:
        part = waiting.pop()
        if part.at < 0:
            part.at = call.at
            waiting.extend(syntax.children(part))
    return node


def _call(function: str, *arguments: Node) -> Call:
    return Call(function, None, list(arguments))


def _accumulator() -> Ident:
    return Ident(syntax.ACCUMULATOR)


def _variable(node: Node, problem: str = "argument is not an identifier") -> str:
    if not isinstance(node, Ident):
        raise SyntaxInvalid(problem, node.at)
    # "__result__" was the accumulator's name in older versions of cel-go.
    if node.name in (syntax.ACCUMULATOR, "__result__"):
        raise SyntaxInvalid("iteration variable overwrites accumulator variable", node.at)
    return node.name


def _two_variables(call: Call) -> tuple[str, str]:
    first, second = call.arguments[0], call.arguments[1]
    names = tuple(node.name for node in (first, second) if isinstance(node, Ident))
    if len(names) == 2 and names[0] == names[1]:
        raise SyntaxInvalid(f"duplicate variable name: {names[0]}", second.at)
    return _variable(first, _NO_NAME), _variable(second, _NO_NAME)


def _target(call: Call) -> Node:
    # Macros that use this are only found for calls that have a target.
    return call.target or Ident("")


def _has(call: Call) -> Node:
    field = call.arguments[0]
    if not isinstance(field, Select) or field.test_only:
        raise SyntaxInvalid("invalid argument to has() macro", field.at)
    return Select(field.operand, field.field, test_only=True)


def _quantifier(call: Call) -> Node:
    """``all``, ``exists`` and ``exists_one``, with one variable or two."""
    if len(call.arguments) == 3:
        first, second = _two_variables(call)
    else:
        first, second = _variable(call.arguments[0], _NO_NAME), ""
    predicate = call.arguments[-1]
    result: Node = _accumulator()
    if call.function == "all":
        initial: Node = Literal(value=True)
        condition: Node = _call("@not_strictly_false", _accumulator())
        step = _call("_&&_", _accumulator(), predicate)
    elif call.function == "exists":
        initial = Literal(value=False)
        condition = _call("@not_strictly_false", _call("!_", _accumulator()))
        step = _call("_||_", _accumulator(), predicate)
    else:
        initial = Literal(0)
        condition = Literal(value=True)
        step = _call("_?_:_", predicate, _call("_+_", _accumulator(), Literal(1)), _accumulator())
        result = _call("_==_", _accumulator(), Literal(1))
    return Fold(_target(call), first, second, syntax.ACCUMULATOR, initial, condition, step, result)


def _gather(call: Call, first: str, second: str, initial: Node, step: Node, predicate: Node | None) -> Node:
    if predicate is not None:
        step = _call("_?_:_", predicate, step, _accumulator())
    return Fold(
        _target(call), first, second, syntax.ACCUMULATOR, initial, Literal(value=True), step, _accumulator()
    )


def _appended(element: Node) -> Node:
    return _call("_+_", _accumulator(), ListLiteral([element]))


def _map(call: Call) -> Node:
    predicate = call.arguments[1] if len(call.arguments) == 3 else None
    variable = _variable(call.arguments[0])
    return _gather(call, variable, "", ListLiteral([]), _appended(call.arguments[-1]), predicate)


def _filter(call: Call) -> Node:
    variable, predicate = call.arguments
    return _gather(call, _variable(variable), "", ListLiteral([]), _appended(variable), predicate)


def _transform_list(call: Call) -> Node:
    first, second = _two_variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    return _gather(call, first, second, ListLiteral([]), _appended(call.arguments[-1]), predicate)


def _transform_map(call: Call) -> Node:
    first, second = _two_variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    step = _call(_INSERT, _accumulator(), Ident(first), call.arguments[-1])
    return _gather(call, first, second, MapLiteral([]), step, predicate)


def _transform_map_entry(call: Call) -> Node:
    first, second = _two_variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    step = _call(_INSERT, _accumulator(), call.arguments[-1])
    return _gather(call, first, second, MapLiteral([]), step, predicate)


def _bound(name: Node, value: Node, body: Node, macro: str = "") -> Node:
    """``name = value`` within ``body``: a fold over nothing, whose accumulator is the variable."""
    if not isinstance(name, Ident):
        raise SyntaxInvalid(f"{macro} simple identifier" + ("s" if "bind" in macro else ""), name.at)
    return Fold(
        ListLiteral([]), syntax.UNUSED, "", name.name, value, Literal(value=False), Ident(name.name), body
    )


def _bind(call: Call) -> Node | None:
    if not isinstance(call.target, Ident) or call.target.name != "cel":
        return None
    name, value, body = call.arguments
    return _bound(name, value, body, "cel.bind() variable names must be")


def _optional_map(call: Call) -> Node:
    target = _target(call)
    name, body = call.arguments
    problem = f"{call.function}() variable name must be a"
    bound = _bound(name, Call("value", target, []), body, problem)
    if call.function == "optMap":
        bound = _call("optional.of", bound)
    return _call("_?_:_", Call("hasValue", target, []), bound, _call("optional.none"))


def _sort_by(call: Call) -> Node | None:
    """``x.sortBy(v, key)``: x is bound to a variable, its keys are computed by map() and sorted with it."""
    name = "@__sortBy_input__"
    variable, key = call.arguments
    if not isinstance(variable, Ident):
        raise SyntaxInvalid("argument is not an identifier", variable.at)
    keys = _map(Call("map", Ident(name), [variable, key]))
    return _bound(Ident(name), _target(call), Call("@sortByAssociatedKeys", Ident(name), [keys]))


_MACROS: dict[tuple[str, int, bool], Callable[[Call], Node | None]] = {
    ("has", 1, False): _has,
    **{(name, count, True): _quantifier for name in ("all", "exists", "exists_one") for count in (2, 3)},
    ("existsOne", 3, True): _quantifier,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    **{("transformList", count, True): _transform_list for count in (3, 4)},
    **{("transformMap", count, True): _transform_map for count in (3, 4)},
    **{("transformMapEntry", count, True): _transform_map_entry for count in (3, 4)},
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _optional_map,
    ("optFlatMap", 2, True): _optional_map,
    ("sortBy", 2, True): _sort_by,
}
