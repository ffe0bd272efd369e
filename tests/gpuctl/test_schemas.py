"""What commands print for scripts is as the shipped schemas say, and docs/gpuctl.md lists them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from gpuctl.cli.output import API_VERSION
from tests.clusters import commands
from tests.gpuctl.documents import SCHEMAS, read_document, schema_of

ROOT = Path(__file__).resolve().parents[2]
ALL_TIERS = ROOT / "deploy/examples/node-config/all-tiers.yaml"
KINDS = sorted(path.stem for path in SCHEMAS.glob("*.json"))


def run(*arguments: str) -> str:
    return CliRunner().invoke(commands, [*arguments, "-o", "json"], catch_exceptions=False).stdout


def keys_of(schema: Any) -> Iterator[str]:
    """All names of fields that a schema has."""
    if isinstance(schema, Mapping):
        yield from schema.get("properties", {})
    for value in (
        schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    ):
        yield from keys_of(value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one_and_its_names_are_in_camel_case(kind: str) -> None:
    schema = schema_of(kind)

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["apiVersion"] == {"const": API_VERSION}
    assert schema["properties"]["kind"] == {"const": kind}
    assert [name for name in keys_of(schema) if not re.fullmatch(r"[a-z][A-Za-z0-9]*", name)] == []


def test_the_page_lists_the_kinds() -> None:
    page = (ROOT / "docs" / "gpuctl.md").read_text()

    assert sorted(re.findall(r"^\| `[a-z ]+`[^|]* \| `([A-Za-z]+)` \|", page, re.MULTILINE)) == KINDS


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("NodeTopology", ["plan", "--topology", "--machine", "dgx-a100"]),
        ("MigPlan", ["plan", "--partitions", "--machine", "a30-quad"]),
        ("MigPlan", ["plan", "--partitions", "--machine", "hgx-h100", "--layout", "4g,4g"]),
        ("MigPlan", ["plan", "--partitions", "--machine", "hgx-h100", "--config", str(ALL_TIERS)]),
        ("MachineList", ["plan", "--machines"]),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else one,
)
def test_what_needs_no_cluster_is_as_its_schema_says(kind: str, arguments: list[str]) -> None:
    assert read_document(run(*arguments), kind)
