"""Makes the JSON schemas of the documents that ``gpuctl -o json`` prints from the dataclasses behind them."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import itertools
import json
import textwrap
import types
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import gpuctl
from gpuctl.cli.output import API_VERSION, camel_case

SCHEMAS = Path(gpuctl.__file__).with_name("schemas")
DOCUMENTS: tuple[str, ...] = (
    "gpuctl.demo.story:DemoStory",
    "gpuctl.describe.sections:Description",
    "gpuctl.doctor.report:DoctorReport",
    "gpuctl.explain.findings:Explanation",
    "gpuctl.explain.findings:ExplanationList",
    "gpuctl.heal.plan:Heal",
    "gpuctl.heal.steps:HealStep",
    "gpuctl.plan.machines:MachineList",
    "gpuctl.plan.partitions:MigPlan",
    "gpuctl.plan.topology:NodeTopology",
    "gpuctl.simulate.results:Simulation",
    "gpuctl.status.picture:GpuStatus",
    "gpuctl.top.usage:GpuUsage",
    "gpuctl.verify.report:VerifyReport",
)
"""The dataclasses, as ``module:Name``; the name is the kind of the document."""
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_files() -> dict[Path, str]:
    """The file of each kind and its text."""
    files = {}
    for place in DOCUMENTS:
        module, _, name = place.partition(":")
        schema = document_schema(getattr(import_module(module), name))
        files[SCHEMAS / f"{name}.json"] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    return files


def document_schema(kind: type) -> dict[str, Any]:
    """The schema of a document: apiVersion and kind, and the fields of the dataclass."""
    schema = schema_of(kind)
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind.__name__}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.__name__,
        **schema,
        "properties": head | schema["properties"],
        "required": [*head, *schema["required"]],
    }


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of what ``as_data`` makes of a value of this type; TypeError for a type that has none.

    A field that may be None is not required, since ``as_data`` leaves it out.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"enum": [*parts]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [one.value for one in kind]}
    if origin in (Union, types.UnionType):
        choices = [schema_of(part) for part in parts]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    if origin is tuple and parts[-1] is not ...:
        return {"type": "array", "prefixItems": [schema_of(part) for part in parts]}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(parts[0])}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _object_schema(kind)
    raise TypeError(f"no schema for a value of the type {kind}")


def _object_schema(kind: type[Any]) -> dict[str, Any]:
    hints, meanings = get_type_hints(kind), _meanings(kind)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        name, parts = camel_case(field.name), get_args(hints[field.name])
        is_optional = type(None) in parts
        if not is_optional:
            required.append(name)
        present = tuple(part for part in parts if part is not type(None))
        schema = schema_of(Union[present] if is_optional else hints[field.name])  # noqa: UP007 # built at run time
        meaning = meanings.get(field.name)
        properties[name] = {"description": meaning, **schema} if meaning else schema
    meaning = inspect.getdoc(kind) or ""
    described = {"description": " ".join(meaning.split())} if meaning else {}
    return {**described, "type": "object", "properties": properties, "required": required}


def _meanings(kind: type[Any]) -> dict[str, str]:
    """The docstrings below the fields of a dataclass and of those that it extends."""
    meanings: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        body = next(part for part in ast.walk(tree) if isinstance(part, ast.ClassDef)).body
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    meanings[name] = " ".join(text.split())
    return meanings
