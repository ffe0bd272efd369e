"""Refuses literals that are wrong although their types fit (cel-go, cel/validator.go)."""

from __future__ import annotations

from kubernetes_rules.cel.checker import Checker, TypeInvalid
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.library_string_format import TYPES_OF_VERBS, clauses
from kubernetes_rules.cel.syntax import Call, ListLiteral, Literal, MapLiteral, Node, children, descendants
from kubernetes_rules.cel.types import CelError, Type


def check_literals(checker: Checker, tree: Node) -> None:
    """Raises TypeInvalid for lists and maps of several types, wrong regular expressions and format texts."""
    exempt = {id(node) for call in _format_calls(tree) for node in descendants(call)}
    for node in checker.nodes:
        match node:
            case ListLiteral() if id(node) not in exempt:
                _check_same(
                    [
                        _kind(checker, item, index in node.optional)
                        for index, item in enumerate(node.elements)
                    ],
                    node,
                )
            case MapLiteral() if id(node) not in exempt:
                _check_same([_kind(checker, key, optional=False) for key, _, _ in node.entries], node)
                _check_same([_kind(checker, value, optional) for _, value, optional in node.entries], node)
            case Call(function="matches", arguments=[Literal(value=str() as pattern), *_]):
                try:
                    compiled(pattern)  # of matches(a, b) it is a, as in cel-go
                except CelError as error:
                    raise TypeInvalid(
                        f"the argument at character {node.arguments[0].start}: {error}"
                    ) from error
            case Call(
                function="format", target=Literal(value=str() as text), arguments=[ListLiteral() as values]
            ):
                _check_format(checker, text, values)


def _format_calls(tree: Node) -> list[Call]:
    return [node for node in descendants(tree) if isinstance(node, Call) and node.function == "format"]


def _check_format(checker: Checker, text: str, values: ListLiteral) -> None:
    count = 0
    try:
        for clause in clauses(text, len(values.elements)):
            if clause.verb:
                _check_verb(checker, clause.verb, values.elements[count])
                count += 1
    except CelError as error:
        raise TypeInvalid(f"the format of the values at character {values.start}: {error}") from error
    if count < len(values.elements):
        raise TypeInvalid(f"the format of the values at character {values.start} takes {count}")


def _check_verb(checker: Checker, verb: str, node: Node) -> None:
    kind = checker.final(node.type).name
    if kind != "dyn" and kind not in TYPES_OF_VERBS[verb]:
        raise TypeInvalid(f"%{verb} at character {node.start} is no format for {kind}")
    if verb == "s" and isinstance(node, ListLiteral | MapLiteral):
        for part in children(node):
            _check_verb(checker, verb, part)


def _kind(checker: Checker, node: Node, optional: bool) -> Type:
    kind = checker.final(node.type)
    if not optional:
        return kind
    if not kind.parameters:
        # Kubernetes' own check crashes here: to refuse the expression keeps it out of a scheduler.
        raise TypeInvalid(f"whether the value at character {node.start} is optional is not known")
    return kind.parameters[0]


def _check_same(kinds: list[Type], node: Node) -> None:
    for kind in kinds[1:]:
        if kind != kinds[0]:
            raise TypeInvalid(f"the literal at character {node.start} holds {kinds[0]} and {kind}")
