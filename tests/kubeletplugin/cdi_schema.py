"""Judges CDI specs by the schema of CDI, which is read and checked itself once in a process."""

import json
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

_SCHEMA = json.loads((Path(__file__).parent / "cdi-schema.json").read_text())
_JUDGE = validator_for(_SCHEMA)
_JUDGE.check_schema(_SCHEMA)


def validate(spec: Any) -> None:
    """Raises jsonschema.ValidationError for what is no CDI spec."""
    _JUDGE(_SCHEMA).validate(spec)
