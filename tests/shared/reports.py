"""Reports of captures, and the JSON Schema that each of them has to fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

import fxminify

SCHEMA = json.loads((Path(fxminify.__file__).parent / "minifier" / "reporting" / "report.schema.json").read_text())


def fitting(report: Any) -> dict[str, Any]:
    """``report``, which fits the schema and has no fields besides it."""
    jsonschema.validate(report, _closed(SCHEMA))
    found: dict[str, Any] = report
    return found


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without room for unknown fields."""
    closed = {name: {**one, "additionalProperties": False} for name, one in schema["$defs"].items()}
    return {**schema, "$defs": closed}
