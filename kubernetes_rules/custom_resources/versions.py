"""The fields of a definition that lie in its versions: names, subresources, columns, selectable fields.

Source: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go.
"""

from __future__ import annotations

from kubernetes_rules.custom_resources.field_paths import PathInvalid, resolved
from kubernetes_rules.custom_resources.schema import Raw, Schema, parse_schema
from kubernetes_rules.custom_resources.structural import unsupported
from kubernetes_rules.printed import json_text
from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MOST_SELECTABLE = 8
_LARGEST_WARNING_BYTES = 256


def label_errors(path: str, text: str, prefix: str = "") -> list[FieldError]:
    """The errors of a name that must be an RFC 1035 label; with a prefix of the text, in any case."""
    wrong = names.dns_label_1035(text.lower() if prefix else text)
    return [field.invalid(path, text, prefix + ",".join(wrong))] if wrong else []


def pointer_error(path: str, text: str, detail: str) -> FieldError:
    """The error of a text that has another type in Go than string, such as a pointer: it is shown as JSON."""
    return field.without_value(path, f"{json_text(text)}: {detail}")


def warning_texts(version: Raw) -> list[str]:
    """What is wrong with the warning of a deprecated version."""
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return ["can only be set for deprecated versions"]
    texts = []
    if len(warning.encode()) > _LARGEST_WARNING_BYTES:
        texts.append("must be <= 256 characters long")
    if not warning:
        texts.append("must not be an empty string")
    for index, character in enumerate(warning):
        if not character.isprintable():
            position = len(warning[:index].encode())
            texts.append(
                "must only contain printable UTF-8 characters; non-printable character found at index "
                f"{position}"
            )
            break
    return texts


def name_errors(kind_names: Raw, path: str) -> list[FieldError]:
    """The errors of the names of a kind, wanted or accepted ones."""
    errors: list[FieldError] = []
    any_case = "may have mixed case, but should otherwise match: "
    for name, prefix in (("plural", ""), ("singular", ""), ("kind", any_case), ("listKind", any_case)):
        if kind_names.get(name):
            errors += label_errors(f"{path}.{name}", kind_names[name], prefix)
    for name in ("shortNames", "categories"):
        for index, text in enumerate(kind_names.get(name) or []):
            errors += label_errors(f"{path}.{name}[{index}]", text)
    list_kind = kind_names.get("listKind") or ""
    if list_kind and list_kind == kind_names.get("kind"):
        text = "kind and listKind may not be the same"
        errors.append(field.invalid(f"{path}.listKind", list_kind, text))
    return errors


def _path_errors(path: str, text: str, beginnings: tuple[str, ...], rule: str) -> list[FieldError]:
    if not text.startswith("."):
        return [field.invalid(path, text, "must be a simple json path starting with .")]
    if beginnings and not text.startswith(beginnings):
        return [field.invalid(path, text, f"should be a json path under {rule}")]
    return []


def subresource_errors(subresources: Raw | None, path: str) -> list[FieldError]:
    """The errors of the paths of the scale subresource."""
    scale = (subresources or {}).get("scale")
    errors: list[FieldError] = []
    if scale is None:
        return errors
    for name, beginning in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        here = f"{path}.scale.{name}"
        if scale.get(name):
            errors += _path_errors(here, scale[name], (f"{beginning}.",), beginning)
        else:
            errors.append(field.required(here))
    if scale.get("labelSelectorPath"):
        here = f"{path}.scale.labelSelectorPath"
        either = (".spec.", ".status.")
        text = scale["labelSelectorPath"]
        found = _path_errors(here, text, either, "either .spec or .status")
        is_path = text.startswith(".")
        rule = "should be a json path under either .spec or .status"
        errors += [pointer_error(here, text, rule)] if found and is_path else found
    return errors


def column_errors(holder: Raw, path: str) -> list[FieldError]:
    """The errors of additional printer columns."""
    errors: list[FieldError] = []
    one_of = f"must be one of {','.join(_COLUMN_TYPES)}"
    for index, column in enumerate(holder.get("additionalPrinterColumns") or []):
        here = f"{path}[{index}]"
        kind, form, text = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
        if not column.get("name"):
            errors.append(field.required(f"{here}.name"))
        if not kind:
            errors.append(field.required(f"{here}.type", one_of))
        elif kind not in _COLUMN_TYPES:
            errors.append(field.invalid(f"{here}.type", kind, one_of))
        if form and form not in _COLUMN_FORMATS:
            errors.append(
                field.invalid(f"{here}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
            )
        if text:
            errors += _path_errors(f"{here}.JSONPath", text, (), "")
        else:
            errors.append(field.required(f"{here}.JSONPath"))
    return errors


def selectable_errors(
    holder: Raw, validation: Raw | None, path: str, without_schema: str
) -> list[FieldError]:
    """The errors of selectable fields; ``without_schema`` is the text if there is no schema."""
    here = f"{path}.selectableFields"
    if not holder.get("selectableFields"):
        return []
    schema = (validation or {}).get("openAPIV3Schema")
    # Of what all versions share, an empty validation counts as a schema: only its paths are read.
    if schema is None and (validation is None or path != "spec"):
        return [field.invalid(here, "", without_schema)]
    reason = None if schema is None else unsupported(schema)
    errors: list[FieldError] = []
    if reason is not None:
        errors.append(field.invalid(f"{path}.schema.openAPIV3Schema", "", reason))
    parsed = Schema() if reason is not None or schema is None else parse_schema(schema)
    seen: set[tuple[str, ...]] = set()
    for index, entry in enumerate(holder["selectableFields"]):
        text, where = entry.get("jsonPath") or "", f"{here}[{index}].jsonPath"
        if not text:
            errors.append(field.required(where))
            continue
        try:
            keys, found = resolved(text, parsed, allows_brackets=False)
        except PathInvalid as error:
            errors.append(field.invalid(where, text, f"is an invalid path: {error}"))
            continue
        errors += _selected_errors(keys, found, text, where)
        if keys in seen:
            errors.append(field.duplicate(where, text))
        seen.add(keys)
    if len(seen) > _MOST_SELECTABLE:
        errors.append(field.too_many(here, len(seen), _MOST_SELECTABLE))
    return errors


def _selected_errors(keys: tuple[str, ...], found: Schema, text: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if keys[0] == "metadata":
        errors.append(field.invalid(path, text, "must not point to fields in metadata"))
    if found.type not in ("string", "boolean", "integer"):
        rule = "must point to a field of type string, boolean or integer. "
        rule += "Enum string fields and strings with formats are allowed."
        errors.append(field.invalid(path, text, rule))
    return errors
