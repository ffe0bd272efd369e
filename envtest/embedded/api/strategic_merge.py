"""Strategic merge patches, which kubectl sends: lists are merged by the key that their type names.

Keys that begin with a dollar sign are directives. As apimachinery's package util/strategicpatch does it, also
with regard to the order of lists. The functions change what they are given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from envtest.embedded.api.statuses import Refused, plain_go_error
from envtest.embedded.schema.types import FieldType

Object = dict[str, Any]

_DIRECTIVE, _RETAIN, _ORDER, _DELETE = "$patch", "$retainKeys", "$setElementOrder", "$deleteFromPrimitiveList"


def strategic_merged(target: Object, patch: Object, kind: FieldType) -> Object:
    """``target`` after the patch, both of the type ``kind``; neither is changed.

    Raises Refused: 400, or 500 without a reason, which is what Kubernetes answers to most malformed patches.
    """
    return _merged_map(copy.deepcopy(target), copy.deepcopy(patch), kind)


def _merged_map(original: Object | None, patch: Object, kind: FieldType) -> Object:
    if _DIRECTIVE in patch:
        directive = patch[_DIRECTIVE]
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        if directive == "delete":
            return {}
        raise _malformed(f"unknown directive {directive}")
    result = {} if original is None else original
    _retain(result, patch)
    _merge_ordered_lists(result, patch, kind)
    for key, value in patch.items():
        deletes = key.startswith(_DELETE)
        name = _name_of(key, _DELETE, "invalid patch format of primitive list") if deletes else key
        if value is None:
            result.pop(name, None)
        elif name not in result or _shape(result[name]) is not _shape(value):
            if not deletes:
                _put(result, name, value)
        else:
            result[name] = _merged_field(result[name], value, kind.field_type(name), deletes=deletes)
    return result


def _merged_field(before: Any, value: Any, field: FieldType, *, deletes: bool) -> Any:
    """The value of a field that the object and the patch have, of one kind in both."""
    if isinstance(value, dict) and "replace" not in field.strategies:
        return _merged_map(before, value, field)
    if isinstance(value, list) and (deletes or "merge" in field.strategies):
        return _merged_list(before, value, field, deletes=deletes)
    return value


def _put(result: Object, name: str, value: Any) -> None:
    """Put in a value of the patch that meets nothing of its kind, without nulls and directives."""
    kept, value = _without_directives(_without_nulls(value))
    if kept:
        result[name] = value
    else:
        result.pop(name, None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _without_directives(value: Any) -> tuple[bool, Any]:
    """Whether the value is more than a directive, and the value without directives in it."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return False, None
        found = {key: _without_directives(item) for key, item in value.items()}
        return True, {key: item for key, (kept, item) in found.items() if kept}
    if isinstance(value, list):
        return True, [item for kept, item in map(_without_directives, value) if kept]
    return True, value


def _retain(result: Object, patch: Object) -> None:
    """Remove the fields that $retainKeys does not name, such as the other members of a union."""
    if _RETAIN not in patch:
        return
    names = patch.pop(_RETAIN)
    directives = (_DELETE, _ORDER)
    if not isinstance(names, list) or any(
        value is not None and not key.startswith(directives) and key not in names
        for key, value in patch.items()
    ):
        raise Refused(400, "invalid patch format of retainKeys")
    for key in [key for key in result if key not in names]:
        del result[key]


def _merge_ordered_lists(result: Object, patch: Object, kind: FieldType) -> None:
    """Merge the lists that come with a $setElementOrder, and take both out of the patch."""
    for key in [key for key in patch if key.startswith(_ORDER)]:
        order = patch.pop(key)
        if not isinstance(order, list):
            raise _malformed(f"{key} is no list")
        name = _name_of(key, _ORDER, "invalid patch format of setElementOrder list")
        field = kind.field_type(name)
        for holder in (result, patch):
            if name in holder and not isinstance(holder[name], list):
                raise _malformed(f"{name} is no list")
        given, before = patch.pop(name, None), result.get(name)
        if given is None and before is None:
            continue
        if given is None:
            merged = before or []
        elif before is None:
            _, merged = _without_directives(given)
        elif "merge" in field.strategies:
            merged = _merged_list(before, given, field, deletes=False)
        else:
            merged = given
        _check_same_kind(before or [], given or [], may_be_empty=False)
        result[name] = _ordered(merged, order, before or [], field.merge_key)


def _merged_list(original: list[Any], patch: list[Any], field: FieldType, *, deletes: bool) -> list[Any]:
    if not original and not patch:
        return original
    key = field.merge_key
    if not _check_same_kind(original, patch):
        if deletes:
            return [item for item in original if item not in patch]
        merged = list(dict.fromkeys([*original, *patch]))
        return _ordered(merged, patch, original, "")
    if not key:
        raise _malformed("a list of such objects has no merge key")
    before = original
    original, patch, replaces = _after_directives(original, patch, key)
    merged = list(original)
    for item in patch:
        if key not in item:
            raise _no_key(key)
        at = _find(merged, key, item[key])
        if at is None:
            # The keys of a new entry stay, its directives and nulls go when it is decoded.
            merged.append(item)
        else:
            merged[at] = _merged_map(merged[at], item, field.item)
    if not replaces:
        # In Go new entries take the room of deleted ones. It shows where $setElementOrder orders them again.
        before[:] = merged[: len(before)]
    return _ordered(merged, patch, original, key)


def _after_directives(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any], bool]:
    """The list without what the patch deletes, the patch without directives, and whether it replaces all."""
    rest, replaces = [], False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if _DIRECTIVE not in item:
            rest.append(item)
        elif directive == "delete":
            if key not in item:
                raise _no_key(key)
            original = [one for one in original if one.get(key) != item[key]]
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise _malformed("lists cannot be merged by a directive")
        else:
            raise _malformed(f"unknown directive {directive}")
    return (rest, [], True) if replaces else (original, rest, False)


def _ordered(merged: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """The merged list: what ``order`` names as it has it, other entries before those that they preceded."""
    named: list[Any] = []
    others: list[Any] = []
    for item in merged:
        if key and (not isinstance(item, dict) or key not in item):
            raise _no_key(key)
        is_named = (_find(order, key, item[key]) is not None) if key else item in order
        (named if is_named else others).append(item)
    place = _places(order, key)
    earlier = _places(before, key)
    named, others = _sorted(named, place), _sorted(others, earlier)
    result: list[Any] = []
    while named and others:
        one, other = earlier(others[0]), earlier(named[0])
        precedes = one is not None and other is not None and one < other
        result.append((others if precedes else named).pop(0))
    return [*result, *named, *others]


def _places(order: list[Any], key: str) -> Callable[[Any], int | None]:
    """Finds the first place of an entry in ``order``."""

    def place(item: Any) -> int | None:
        if not key:
            return order.index(item) if item in order else None
        return _find(order, key, item.get(key))

    return place


def _sorted(items: list[Any], place: Callable[[Any], int | None]) -> list[Any]:
    """Sorted by place as Go's insertion sort does; one without a place is less than all others."""
    result: list[Any] = []
    for item in items:
        at, own = len(result), place(item)
        while at > 0 and ((other := place(result[at - 1])) is None or own is None or own < other):
            at -= 1
        result.insert(at, item)
    return result


def _find(items: list[Any], key: str, value: Any) -> int | None:
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise _no_key(key)
        if item.get(key) == value:
            return at
    return None


def _check_same_kind(original: list[Any], patch: list[Any], *, may_be_empty: bool = True) -> bool:
    """Whether the entries are maps; raises Refused (422, 500) for lists of lists, and for different kinds."""
    kinds = {_shape(item) for item in (*original, *patch)}
    if not kinds and not may_be_empty:
        raise _malformed("no elements in any of the lists")
    if list in kinds:
        raise Refused(422, "lists of lists are not supported", details={})
    if len(kinds) > 1:
        raise _malformed("the elements of a list are of several types")
    return kinds == {dict}


def _name_of(key: str, prefix: str, wrong: str) -> str:
    head, slash, name = key.partition("/")
    if head != prefix or not slash:
        raise Refused(400, wrong)
    return name


def _shape(value: Any) -> type:
    return next((one for one in (dict, list, str) if isinstance(value, one)), float)


def _no_key(key: str) -> Refused:
    return _malformed(f"an entry of a list has no merge key {key}")


def _malformed(text: str) -> Refused:
    return plain_go_error(f"the strategic merge patch cannot be applied: {text}")
