"""Plays a case on a server: sends its requests one by one, and notes what is comparable in the answers.

A case has a namespace of its own, whose name is in its requests as ``{{ns}}``. ``{{0:metadata.uid}}`` is a
field of the first answer, as the server gave it.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import Any

import yaml

from envtest.embedded.schema import protobuf
from tools.conformance.api.connection import Connection, Response, Step
from tools.conformance.api.normal_form import Normal
from tools.conformance.area import Answer, Case

_TRIES, _PAUSE_SECONDS = 100, 0.05
_FIELD = re.compile(r"\{\{(\d+):([^}]+)\}\}")
_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_JSON = {"Content-Type": "application/json"}
_NAMESPACE: dict[str, Any] = {
    "target": "/api/v1/namespaces",
    "body": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{{ns}}"}},
}
_ACCOUNT: dict[str, Any] = {
    "target": "/api/v1/namespaces/{{ns}}/serviceaccounts",
    "body": {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default"},
        "automountServiceAccountToken": False,
    },
}
"""Of each namespace a controller makes this account, which pods need. None runs with kube-apiserver here."""

_HEADERS = ("retry-after", "location", "allow")


def play(case: Case, connection: Connection) -> Answer:
    """The answers of the server to the requests of a case."""
    # Its first letter is in messages about broken JSON.
    name = "q" + "".join(secrets.choice(_NAME_LETTERS) for _ in range(7))
    said = json.dumps(case)
    for item in (_NAMESPACE, _ACCOUNT) if "/pods" in said else (_NAMESPACE,):
        body = json.dumps(item["body"]).replace("{{ns}}", name).encode()
        target = item["target"].replace("{{ns}}", name)
        made = connection.exchange({"method": "POST", "target": target, "headers": _JSON}, body)
        assert made.code == 201, made
    normal = Normal(name, said)
    raw: list[Any] = []
    answers = []
    for step in case["steps"]:
        headers = {key: _filled(value, name, raw) for key, value in step.get("headers", {}).items()}
        sent = {**step, "target": _filled(step["target"], name, raw), "headers": headers}
        if "user" in step:
            sent["user"] = _filled(step["user"], name, raw)
        response, found = _asked(connection, sent, _body_of(step, name, raw))
        raw.append(found)
        answers.append(normal.answer(step, _answer(sent, response, found)))
    return {"answers": answers}


def _asked(connection: Connection, step: Step, body: bytes) -> tuple[Response, Any]:
    """The answer to a request, which is sent again until the field that the step names is true."""
    for _ in range(_TRIES):
        response = connection.exchange(step, body)
        found = content_of(response)
        value = found
        for part in step["until"].split(".") if "until" in step else ():
            value = (value or {}).get(part)
        if value or "until" not in step:
            break
        time.sleep(_PAUSE_SECONDS)
    return response, found


def _filled(text: str, name: str, raw: list[Any]) -> str:
    """A text of a case with the name of its namespace and fields of earlier answers."""

    def value(match: re.Match[str]) -> str:
        found = raw[int(match[1])]
        for part in match[2].split("."):
            found = found[int(part)] if isinstance(found, list) else (found or {}).get(part, "")
        return str(found)

    return _FIELD.sub(value, text.replace("{{ns}}", name))


def _body_of(step: Step, name: str, raw: list[Any]) -> bytes:
    """The bytes of a body: a text, or pieces of text that are repeated."""
    body = step.get("body", "")
    pieces: list[tuple[str, int]] = [(body, 1)] if isinstance(body, str) else body
    text = "".join(piece * count for piece, count in pieces)
    # Bytes that are no UTF-8 are surrogates in the text of a case.
    return _filled(text, name, raw).encode("utf-8", "surrogateescape")


def content_of(response: Response) -> Any:
    """The body of an answer as a value, a text where it is neither JSON nor YAML nor protobuf."""
    kind = response.header("content-type").partition(";")[0]
    if not response.body:
        return None
    if kind == "application/json":
        try:
            return json.loads(response.body)
        except ValueError:
            return [json.loads(line) for line in response.lines]
    if kind == "application/yaml":
        return yaml.load(response.body, Loader=yaml.CSafeLoader)
    if kind == protobuf.CONTENT_TYPE and response.body.startswith(protobuf.MAGIC):
        return {"protobuf": len(response.body) > len(protobuf.MAGIC)}
    return response.body.decode("utf-8", "replace")


def _answer(step: Step, response: Response, content: Any) -> Answer:
    answer: Answer = {"code": response.code, "type": response.header("content-type"), "body": content}
    if "watch=" in step["target"] and response.lines:
        answer["body"] = [json.loads(line) for line in response.lines if line.startswith(b"{")]
    texts = [text for value in response.headers.get("warning", []) for text in _WARNING.findall(value)]
    if texts:
        answer["warnings"] = texts
    return answer | {name: response.header(name) for name in _HEADERS if name in response.headers}
