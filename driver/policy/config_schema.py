"""The JSON schema of the node configuration, for whoever writes it where this code is not at hand.

It says what fields and words there are. What the whole of a rule means is judged by ``driver.policy.config``
alone, so not all that fits the schema is right.
"""

from __future__ import annotations

from typing import Any

from driver.devices.gpu_policy import HIDDEN
from driver.kinds.registry import KINDS
from driver.policy.predicate import MAX_EXPRESSION_CHARACTERS

Schema = dict[str, Any]


def rule_schema() -> Schema:
    """A rule: when, offer, and the fields of the kinds."""
    said = {field.name: field.schema for field in KINDS.policy_fields}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "when": {
                "description": "A CEL expression over gpu; without it the rule matches every GPU.",
                "type": "string",
                "maxLength": MAX_EXPRESSION_CHARACTERS,
            },
            "offer": {"description": "The form that is offered.", "enum": [*KINDS.forms, HIDDEN]},
            **said,
        },
        "anyOf": [{"required": [name]} for name in ("offer", *said)],
    }


def pool_schema() -> Schema:
    """A pool of nodes: its name, its selector, its rules."""
    expression = {
        "type": "object",
        "additionalProperties": False,
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string"},
            "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "items": {"type": "string"}},
        },
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "nodeSelector"],
        "properties": {
            "name": {"description": "How logs and events name it.", "type": "string", "minLength": 1},
            "nodeSelector": {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchExpressions": {"type": "array", "items": expression},
                },
            },
            "rules": {"type": "array", "items": rule_schema()},
        },
    }
