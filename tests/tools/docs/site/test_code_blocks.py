"""What the documentation shows as code is right: YAML and JSON, files, parts of files, parts of objects.

Whole objects are judged by the embedded cluster, in ``tests/envtest/embedded/test_shipped_manifests.py``.
"""

import http.client
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from driver.policy.config import rule_schema
from envtest.client.api import APPLY
from gpuctl.simulate.workload import load_workload
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import shown
from tests.gpus import decode_any, load_machine, parse_config, parse_file
from tests.tools.docs.site.code_blocks import (
    Block,
    as_claim,
    blocks,
    is_executed,
    is_object,
    opaque_documents,
)
from tools.docs.site.places import ROOT

VALUES = json.loads((ROOT / "deploy" / "chart" / "values.schema.json").read_text())
PARSERS: Mapping[str, Callable[[Block], object]] = {
    "yaml": Block.documents,
    "json": lambda block: json.loads(block.text),
    "toml": lambda block: tomllib.loads(block.text),
}
OF_OTHERS = (
    {"scrape_configs"},  # of Prometheus
    {"startupProbe", "livenessProbe", "readinessProbe"},  # of a container, compared in tests/tools/chart
)
"""Files that nothing of this project reads, by their fields."""

ALL = list(blocks())
DOCUMENTS = [
    (block, document)
    for block in ALL
    if block.language == "yaml" and not is_executed(block.page)
    for document in block.documents()
]
PARTS = {
    f"{block} {number}": document
    for number, (block, document) in enumerate(DOCUMENTS)
    if not is_object(document)
}
CONFIGURED = {
    f"{block} {number} {part}": configuration
    for number, (block, document) in enumerate(DOCUMENTS)
    for part, configuration in enumerate(opaque_documents(document))
}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedApiServer]:
    """An API server that judges claims."""
    with EmbeddedApiServer() as running:
        yield running


def refusal(server: EmbeddedApiServer, claim: Object) -> str:
    """Why the server does not take a claim; empty where it does."""
    path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim['metadata']['name']}"
    target = f"{path}?fieldManager=t&force=true&fieldValidation=Strict&dryRun=All"
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        connection.request("PATCH", target, json.dumps(claim), {"Content-Type": APPLY, **shown(server)})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        return "" if answer.status in (200, 201) else str(told["message"])
    finally:
        connection.close()


def is_of_chart(document: Mapping[str, Any]) -> bool:
    """Whether a document has values of the chart; Kueue's configuration has a field of the same name."""
    return set(document) <= set(VALUES["properties"]) and "deviceClassMappings" not in document.get(
        "resources", ()
    )


def judge(document: Any, server: EmbeddedApiServer, folder: Path) -> None:
    """Read a document as what it is; raises what its reader raises, LookupError where nobody reads it."""
    text = yaml.safe_dump(document, sort_keys=False)
    file = folder / "block.yaml"
    file.write_text(text)
    if isinstance(document, dict) and set(document) <= set(rule_schema()["properties"]):
        parse_config(yaml.safe_dump({"version": "v1", "rules": [document]}), "block")
    elif isinstance(document, list):
        parse_config(yaml.safe_dump({"version": "v1", "rules": document}), "block")
    elif {"product", "gpus"} <= set(document):
        load_machine(str(file))
    elif set(document) == {"version", "pods"}:
        load_workload(file)
    elif document.get("version") == "v1":
        parse_file(text, "block")
    elif set(document) == {"parameters"}:
        decode_any(document["parameters"])
    elif is_of_chart(document):
        jsonschema.validate(document, VALUES)
    elif claim := as_claim(document):
        assert refusal(server, claim) == ""
    elif set(document) not in OF_OTHERS and list(document.get("resources", ())) != ["deviceClassMappings"]:
        raise LookupError(f"no reader takes the fields {', '.join(document)}")


@pytest.mark.parametrize("block", [block for block in ALL if block.language in PARSERS], ids=str)
def test_a_block_is_in_its_language(block: Block) -> None:
    PARSERS[block.language](block)


@pytest.mark.parametrize("block", PARTS)
def test_a_part_of_a_file_is_right(server: EmbeddedApiServer, tmp_path: Path, block: str) -> None:
    judge(PARTS[block], server, tmp_path)


@pytest.mark.parametrize("block", CONFIGURED)
def test_an_opaque_configuration_is_right(block: str) -> None:
    decode_any(CONFIGURED[block])


def test_whole_objects_parts_of_files_and_configurations_are_found() -> None:
    assert len(DOCUMENTS) > len(PARTS) > 20
    assert "docs/claims.md" in {name.partition(":")[0] for name in CONFIGURED}
