"""Checks paths of files: those that have to stay below a folder."""

from __future__ import annotations

from kubernetes_rules.validation.errors import FieldError, invalid


def backstep_errors(text: str, path: str) -> list[FieldError]:
    """One error where a part of the path is ``..``."""
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def local_path_errors(text: str, path: str, *, reserved: bool = False) -> list[FieldError]:
    """The errors of a path that has to be relative; ``reserved``: nor may it begin with two dots."""
    errors = [invalid(path, text, "must be a relative path")] if text.startswith("/") else []
    errors += backstep_errors(text, path)
    if reserved and text.startswith("..") and not text.startswith("../"):
        errors.append(invalid(path, text, "must not start with '..'"))
    return errors
