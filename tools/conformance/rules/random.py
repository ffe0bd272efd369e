"""Random schemas with validation rules, and objects for them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from tools.conformance.area import Case

Json = dict[str, Any]
_TEXTS = (
    "",
    "a",
    "b",
    "ab",
    "a-b",
    "é",
    "10",
    "10%",
    "https://a.b/c?d=e",
    "80Gi",
    "1.2.3",
    "10.0.0.1",
    "10.0.0.0/8",
)
_NAMES = ("a", "b", "a-b", "namespace", "x__y", "a.b/c", "in")
_KEYWORDS = {"maxItems": (0, 1, 3, 10, 1000), "maxProperties": (1, 3, 100), "maxLength": (1, 5, 64, 5000)}


class _Maker:
    """Makes schemas and expressions; ``wrong`` is the share of parts that are wrong on purpose."""

    def __init__(self, rng: Random, wrong: float = 0.02) -> None:
        self.rng = rng
        self.wrong = wrong
        self.locals: list[tuple[str, Json]] = []

    def limited(self, schema: Json, keyword: str) -> Json:
        if self.rng.random() < 0.6:
            schema[keyword] = self.rng.choice(_KEYWORDS[keyword])
        return schema

    def scalar(self) -> Json:
        kind = self.rng.randrange(9)
        if kind < 3:
            return self.limited({"type": "string"}, "maxLength")
        if kind == 3:
            return {"type": "string", "format": self.rng.choice(("date-time", "date", "duration", "byte"))}
        if kind == 4:
            return {"type": "string", "enum": ["a", "b", "abc"]}
        return {"type": ("integer", "integer", "number", "boolean")[kind - 5]}

    def schema(self, depth: int) -> Json:
        found = self._container(depth) if depth and self.rng.random() < 0.5 else self.scalar()
        if self.rng.random() < 0.08:
            found["nullable"] = True
        return found

    def _container(self, depth: int) -> Json:
        kind = self.rng.randrange(8)
        if kind == 0:
            return {"x-kubernetes-int-or-string": True}
        if kind == 1:
            return self.limited(
                {"type": "object", "additionalProperties": self.schema(depth - 1)}, "maxProperties"
            )
        if kind == 2:
            texts = {"type": "array", "items": self.scalar(), "x-kubernetes-list-type": "set"}
            return self.limited(texts, "maxItems")
        if kind == 3:
            return self._map_list(depth)
        if kind == 4:
            items: Json = {"type": "array", "items": self.schema(depth - 1)}
            if self.rng.random() < 0.3:
                items["x-kubernetes-list-type"] = "atomic"
            return self.limited(items, "maxItems")
        if kind == 5 and self.rng.random() < 0.3:
            return {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            }
        return self.object(depth)

    def _map_list(self, depth: int) -> Json:
        items = self.object(depth - 1)
        keys = self.rng.choice((["name"], ["name", "port"]))
        items["properties"] |= {"name": {"type": "string", "maxLength": 10}, "port": {"type": "integer"}}
        items["required"] = sorted({*items.get("required", ()), *keys})
        found = {
            "type": "array",
            "items": items,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": keys,
        }
        return self.limited(found, "maxItems")

    def object(self, depth: int) -> Json:
        names = self.rng.sample(_NAMES, self.rng.randint(1, 4))
        found: Json = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        if self.rng.random() < 0.4:
            found["required"] = self.rng.sample(names, self.rng.randint(1, len(names)))
        if self.rng.random() < 0.1:
            found["x-kubernetes-map-type"] = self.rng.choice(("atomic", "granular"))
        return found

    # Expressions -----------------------------------------------------------------------------------------

    def paths(self, root: str, schema: Json) -> list[tuple[str, Json]]:
        """Expressions for the values below a value."""
        found = [(root, schema)]
        for name, part in schema.get("properties", {}).items():
            if name in ("in", "namespace"):
                place = f"__{name}__"
            else:
                place = name.replace("__", "__underscores__").replace("-", "__dash__")
                place = place.replace(".", "__dot__").replace("/", "__slash__")
            found += self.paths(f"{root}.{place}", part)
        if self.rng.random() < 0.3:
            if "items" in schema:
                found += self.paths(f"{root}[0]", schema["items"])
            elif isinstance(schema.get("additionalProperties"), dict):
                found += self.paths(f"{root}['a']", schema["additionalProperties"])
        return found

    def rule(self, schema: Json) -> str:
        roots = [("self", schema), ("self", schema), ("oldSelf", schema)]
        self.locals = self.paths(*self.rng.choice(roots[: 2 if self.rng.random() < 0.7 else 3]))
        return self.truth(2)

    def truth(self, depth: int) -> str:
        if self.rng.random() < self.wrong:
            return self.rng.choice(
                ("self.nothing", "nothing", "self +", "foo(1)", "1", "size(1) > 0", "has(self)")
            )
        if depth > 0 and self.rng.random() < 0.5:
            one, other = self.truth(depth - 1), self.truth(depth - 1)
            return self.rng.choice(
                (
                    f"({one}) && ({other})",
                    f"{one} || {other}",
                    f"!({one})",
                    f"{one} ? {other} : true",
                    f"(({one}))",
                )
            )
        path, schema = self.rng.choice(self.locals)
        return self.about(path, schema, depth)

    def about(self, path: str, schema: Json, depth: int) -> str:
        """A statement about a value."""
        choose = self.rng.choice
        if schema.get("x-kubernetes-int-or-string"):
            return choose(
                (f"type({path}) == int", f"{path} == 5", f"{path} == '10%'", f"string({path}).size() < 3")
            )
        if "properties" in schema:
            if self.rng.random() < 0.6 and "." in path:
                return f"has({path})"
            other = path.replace("oldSelf", "self") if path.startswith("oldSelf") else path
            return choose((f"{path} == {other}", f"{path} != {other}", f"dyn({path}) == dyn(1)"))
        if "items" in schema:
            return self.about_list(path, schema, depth)
        if "additionalProperties" in schema:
            return self.about_map(path, schema, depth)
        kinds: dict[str, Callable[[str, Json], str]] = {
            "string": self.about_text,
            "integer": self.about_number,
            "number": self.about_number,
        }
        if schema.get("type") in kinds:
            return kinds[schema["type"]](path, schema)
        if schema.get("type") == "boolean":
            return path
        return f"{path}.kind == 'Pod' || {path}.metadata.name.startsWith('a')"

    def about_list(self, path: str, schema: Json, depth: int) -> str:
        name = f"v{len(self.locals)}"
        kept = list(self.locals)
        self.locals += [*self.paths(name, schema["items"])] * 4
        inner = self.truth(depth - 1)
        self.locals = kept
        macro = self.rng.choice(("all", "exists", "exists_one", "filter", "map", "two"))
        if macro == "two":
            return f"{path}.all(i, {name}, i < 2 || {inner})"
        if macro == "filter":
            return f"{path}.filter({name}, {inner}).size() {self.rng.choice('<>')} 1"
        if macro == "map":
            return f"{path}.map({name}, {name}) {self.rng.choice(('==', '!='))} {path}"
        if self.rng.random() < 0.4:
            return self.rng.choice(
                (
                    f"{path}.size() > 1",
                    f"size({path}) == 0",
                    f"{path} + {path} == {path}",
                    f"{path} == {path}",
                    f"{path}[0] == {path}[0]",
                    f"{path}.isSorted()",
                    f"{path}.max() == {path}.min()",
                    f"{path}[0] in {path}",
                    f"{path}.join(',') != 'a'",
                    f"{path}.indexOf({path}[0]) == 0",
                    f"sets.contains({path}, {path})",
                    f"{path}.sort() == {path}",
                    f"{path}.distinct().size() == {path}.size()",
                    f"{path}.exists(x, x == {path}[0])",
                    f"{path}.slice(0, 1) == {path}",
                    f"{path}.reverse() == {path}",
                    f"{path}.flatten() == {path}",
                    f"{path}.includes({path}[0])",
                    f"cel.bind(x, {path}, x.size() < 2 || x[1] != x[0])",
                    f"{path}[?0].hasValue()",
                    f"{path}.first().hasValue()",
                    f"sets.equivalent({path}, [{path}[0]])",
                )
            )
        return f"{path}.{macro}({name}, {inner})"

    def about_map(self, path: str, schema: Json, depth: int) -> str:
        name = f"k{len(self.locals)}"
        kept = list(self.locals)
        self.locals += [
            (name, {"type": "string"}),
            *self.paths(f"{path}[{name}]", schema["additionalProperties"]),
        ] * 3
        inner = self.truth(depth - 1)
        self.locals = kept
        return self.rng.choice(
            (
                f"{path}.all({name}, {inner})",
                f"{path}.exists({name}, {inner})",
                f"'a' in {path}",
                f"{path}.size() < 2",
                f"has({path}.a)",
                f"{path} == {path}",
                f"{path}.map({name}, {name}).size() > 0",
                f"{path}[?'a'].orValue({path}['b']) == {path}['a']",
            )
        )

    def about_text(self, path: str, schema: Json) -> str:
        kind = schema.get("format")
        if kind == "duration":
            return self.rng.choice(
                (f"{path} > duration('1m')", f"{path}.getSeconds() < 100", f"{path} + {path} == {path}")
            )
        if kind in ("date", "date-time"):
            return self.rng.choice(
                (f"{path} < timestamp('2026-01-01T00:00:00Z')", f"{path}.getFullYear() == 2025")
            )
        if kind == "byte":
            return self.rng.choice((f"{path} == b'abc'", f"size({path}) < 3", f"string({path}) == 'abc'"))
        text = repr(self.rng.choice(_TEXTS))
        other = self.rng.choice([place for place, known in self.locals if known == schema] or [path])
        return self.rng.choice(
            (
                f"{path} == {text}",
                f"{path}.size() < 3",
                f"{path} in ['a', 'b']",
                f"{path}.startsWith({text})",
                f"{path}.matches('^[a-z]+$')",
                f"{path}.contains({other})",
                f"{path} == {other}",
                f"{path} < {other}",
                f"{path} + {other} == {text}",
                f"{path}.split('b').size() == 2",
                f"{path}.replace('a', {other}) == {text}",
                f"quantity({path}).isGreaterThan(quantity('1'))",
                f"isQuantity({path})",
                f"url({path}).getHost() == 'a.b'",
                f"isURL({path})",
                f"{path}.find('[0-9]+') == '10'",
                f"{path}.findAll('a').size() > 0",
                f"int({path}) > 5",
                f"isIP({path}) && ip({path}).family() == 4",
                f"isCIDR({path})",
                f"semver({path}) == semver({other})",
                f"url({path}) == url({other})",
                f"{path}.upperAscii() == 'A'",
                f"{path}.substring(1) == 'b'",
                f"format.dns1123Label().validate({path}).hasValue()",
                f"'%s'.format([{path}]) == {text}",
                f"optional.of({path}).orValue('x') == {text}",
                f"strings.quote({path}) == {text}",
                f"{path}.trim() == {path}",
                f"bytes({path}).size() == {path}.size()",
                f"cidr({path}).containsIP({other})",
                f"double({path}) > 1.0",
                f"{path}.charAt(0) == 'a'",
                f"{path}.indexOf('b') == 1",
                f"{path}.lowerAscii() != {other}",
            )
        )

    def about_number(self, path: str, schema: Json) -> str:
        other = self.rng.choice([place for place, known in self.locals if known == schema] or [path])
        literal = "1" if schema["type"] == "integer" else "1.5"
        return self.rng.choice(
            (
                f"{path} > {literal}",
                f"{path} == {other}",
                f"{path} + {other} < {literal}",
                f"{path} in [{literal}]",
                f"{path} * {other} >= {literal}",
                f"{path} / {other} == {literal}",
                f"string({path}) == '1'",
                f"-{path} < {literal}",
            )
        )

    # Objects ---------------------------------------------------------------------------------------------

    def value(self, schema: Json) -> Any:
        rng = self.rng
        if schema.get("nullable") and rng.random() < 0.2:
            return None
        if schema.get("x-kubernetes-int-or-string"):
            return rng.choice((5, "10%", "a"))
        if schema.get("x-kubernetes-embedded-resource"):
            return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": rng.choice(("a", "b"))}, "x": 1}
        match schema.get("type"):
            case "string":
                return self.text(schema)
            case "integer":
                return rng.choice((0, 1, 2, -5, 2**40))
            case "number":
                return rng.choice((0, 1, 1.5, -2.25, 1e10))
            case "boolean":
                return rng.random() < 0.5
            case "array":
                return self.entries(schema)
        if "additionalProperties" in schema:
            keys = rng.sample(("a", "b", "c-d"), rng.randint(0, min(3, schema.get("maxProperties", 3))))
            return {key: self.value(schema["additionalProperties"]) for key in keys}
        required = schema.get("required", ())
        return {
            name: self.value(part)
            for name, part in schema.get("properties", {}).items()
            if name in required or rng.random() < 0.7
        }

    def text(self, schema: Json) -> str:
        formats = {
            "date-time": ("2025-01-02T03:04:05Z", "2026-06-07T08:09:10.5+02:00"),
            "date": ("2025-01-02", "2026-06-07"),
            "duration": ("1s", "1h30m", "0"),
            "byte": ("YWJj", "", "YQ=="),
        }
        if schema.get("format") in formats:
            return self.rng.choice(formats[schema["format"]])
        texts: tuple[str, ...] = tuple(schema.get("enum") or _TEXTS)
        return self.rng.choice(texts)[: schema.get("maxLength", 100)]

    def entries(self, schema: Json) -> list[Any]:
        made = [
            self.value(schema["items"]) for _ in range(self.rng.randint(0, min(4, schema.get("maxItems", 4))))
        ]
        if schema.get("x-kubernetes-list-type") == "set":
            made = [
                entry for index, entry in enumerate(made) if entry is not None and entry not in made[:index]
            ]
        if keys := schema.get("x-kubernetes-list-map-keys"):
            seen: list[list[Any]] = []
            kept = []
            for entry in made:
                if isinstance(entry, dict) and (place := [entry.get(key) for key in keys]) not in seen:
                    seen.append(place)
                    kept.append(entry)
            return kept
        return made


def _with_rules(maker: _Maker, schema: Json, share: float) -> None:
    """Add rules to some nodes of a schema."""
    if maker.rng.random() < share and not schema.get("x-kubernetes-embedded-resource"):
        schema["x-kubernetes-validations"] = [_rule(maker, schema) for _ in range(maker.rng.randint(1, 2))]
    parts = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for part in parts:
        if isinstance(part, dict):
            _with_rules(maker, part, share)


def _rule(maker: _Maker, schema: Json) -> Json:
    rng = maker.rng
    rule: Json = {"rule": maker.rule(schema)}
    if rng.random() < 0.2:
        rule["message"] = rng.choice(("it is wrong", " a ", "", "two\nlines"))
    if rng.random() < 0.2:
        rule["messageExpression"] = rng.choice(
            ("'a' + 'b'", "string(self)", "'%s'.format([type(self)])", "''", "1", "self.x")
        )
    if rng.random() < 0.2:
        reasons = (
            "FieldValueInvalid",
            "FieldValueForbidden",
            "FieldValueRequired",
            "FieldValueDuplicate",
            "Other",
        )
        rule["reason"] = rng.choice(reasons)
    if rng.random() < 0.15 and schema.get("properties"):
        name = rng.choice([*schema["properties"], "nothing"])
        rule["fieldPath"] = rng.choice((f".{name}", f"['{name}']", name))
    if "oldSelf" in rule["rule"] and rng.random() < 0.2:
        rule["optionalOldSelf"] = True
        rule["rule"] = f"oldSelf.hasValue() ? {rule['rule'].replace('oldSelf', 'oldSelf.value()')} : true"
    return rule


def random_definition(rng: Random) -> Case:
    """A schema with rules that a CustomResourceDefinition may have."""
    maker = _Maker(rng, 0.04)
    spec = maker.object(3)
    _with_rules(maker, spec, 0.35)
    root: Json = {"type": "object", "properties": {"spec": spec}}
    if rng.random() < 0.2:
        root["x-kubernetes-validations"] = [_rule(maker, root)]
    return {"op": "definitionRules", "schema": root}


def random_evaluation(rng: Random) -> Case:
    """A schema with rules, and an object, half of the time with an old one."""
    maker = _Maker(rng, 0.0)
    spec = maker.object(3)
    _with_rules(maker, spec, 0.5)
    item = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": maker.value(spec),
    }
    case: Case = {"op": "rules", "schema": {"type": "object", "properties": {"spec": spec}}, "object": item}
    if rng.random() < 0.5:
        old = copy.deepcopy(item)
        if rng.random() < 0.7:
            old["spec"] = maker.value(spec)
        case["old"] = old
    return case


def random_case(rng: Random) -> Case:
    """A definition or an evaluation."""
    return random_definition(rng) if rng.random() < 0.4 else random_evaluation(rng)
