"""Plays a case on a server: sends its requests one by one, and notes what is comparable in the answers.

A case has a namespace of its own, whose name is in its requests as ``{{ns}}``. ``{{0:metadata.uid}}`` is a
field of the first answer, as the server gave it. Where answers differ each time there are markers: names,
UIDs, versions, times, continue tokens. The same UID or version has the same marker throughout a case.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any

import yaml

from envtest.embedded.server import User
from tools.conformance.area import Answer, Case

Step = dict[str, Any]
"""One request: ``method`` and ``target``; some have ``body``, ``headers``, ``user``, or ``take`` events.

``until`` is a field for which the request is sent again, ``only`` what is compared of the answer's body.
"""

_PATIENCE_SECONDS, _PATIENCE_FOR_EVENTS_SECONDS = 40.0, 4.0
_TRIES, _PAUSE_SECONDS = 100, 0.05
_FIELD = re.compile(r"\{\{(\d+):([^}]+)\}\}")
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_JSON = {"Content-Type": "application/json"}
_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{{ns}}"}}
_ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default"},
    "automountServiceAccountToken": False,
}
"""Of each namespace a controller makes this account, which pods need. None runs with kube-apiserver here."""

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{6})?Z")
_AGE = re.compile(r"\d+s")


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, the administrator's token, and whether it speaks HTTPS.

    ``add_user`` makes a token of a user; None where an administrator impersonates users.
    """

    host: str
    port: int
    token: str
    has_tls: bool
    add_user: Callable[[User], str] | None = None

    def connect(self) -> HTTPConnection:
        """A connection to the server, which signs its own certificate on loopback."""
        if not self.has_tls:
            return HTTPConnection(self.host, self.port, timeout=_PATIENCE_SECONDS)
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - as above
        return HTTPSConnection(self.host, self.port, timeout=_PATIENCE_SECONDS, context=context)

    def headers_of(self, user: str) -> dict[str, str]:
        """Who sends a request: the administrator for an empty name."""
        if user and self.add_user is not None:
            return {"Authorization": f"Bearer {self.add_user(User(user, ('system:authenticated',)))}"}
        named = {"Impersonate-User": user} if user else {}
        return {"Authorization": f"Bearer {self.token}", **named}


def play(case: Case, server: Server) -> Answer:
    """The answers of the server to the requests of a case."""
    # Its first letter is in messages about broken JSON.
    name = "q" + "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(7))
    said = json.dumps(case)
    account = [{"target": "/api/v1/namespaces/{{ns}}/serviceaccounts", "body": json.dumps(_ACCOUNT)}]
    made = [
        {"target": "/api/v1/namespaces", "body": json.dumps(_NAMESPACE)},
        *(account if "/pods" in said else []),
    ]
    marked = Markers(name, said)
    raw: list[Any] = []
    answers = []
    for step in made:
        assert _asked(server, {"method": "POST", "headers": _JSON, **_filled(step, name, [])})["code"] == 201
    for step in case["steps"]:
        answer = _asked(server, _filled(step, name, raw))
        raw.append(answer["body"])
        if "only" in step and isinstance(answer["body"], dict):
            answer["body"] = {key: answer["body"].get(key) for key in step["only"]}
        answers.append(marked.value(answer))
    return {"answers": answers}


def _asked(server: Server, step: Step) -> Answer:
    """The answer to a request, which is sent again until the field that the step names is true."""
    for _ in range(_TRIES):
        with closing(server.connect()) as connection:
            headers = {
                "User-Agent": "conformance/1",
                **step.get("headers", {}),
                **server.headers_of(step.get("user", "")),
            }
            connection.request(step["method"], step["target"], step.get("body", "").encode(), headers)
            answer = _answer(step, connection, connection.getresponse())
        value = answer["body"]
        for part in step["until"].split(".") if "until" in step else ():
            value = (value or {}).get(part)
        if value or "until" not in step:
            break
        time.sleep(_PAUSE_SECONDS)
    return answer


def _answer(step: Step, connection: HTTPConnection, response: HTTPResponse) -> Answer:
    kind = response.headers.get("Content-Type", "")
    answer: Answer = {"code": response.status, "type": kind}
    if "watch=true" in step["target"] and response.status == 200:
        answer["body"] = _events(step, connection, response)
    else:
        data = response.read()
        is_json, is_yaml = kind == "application/json", kind == "application/yaml"
        answer["body"] = json.loads(data) if is_json else yaml.safe_load(data) if is_yaml else data.decode()
    texts = [text for value in response.headers.get_all("Warning", []) for text in _WARNING.findall(value)]
    return answer | ({"warnings": texts} if texts else {})


def _events(step: Step, connection: HTTPConnection, response: HTTPResponse) -> list[Any]:
    """So many events of a watch as the step takes, fewer where no more come; all where it does not say."""
    assert connection.sock is not None
    connection.sock.settimeout(_PATIENCE_FOR_EVENTS_SECONDS)
    events: list[Any] = []
    try:
        while len(events) < step.get("take", 1000) and (line := response.readline()):
            events.append(json.loads(line))
    except TimeoutError:
        pass
    return events


def _filled(step: Step, name: str, raw: list[Any]) -> Step:
    """A step with the name of its namespace and fields of earlier answers."""

    def value(match: re.Match[str]) -> str:
        found = raw[int(match[1])]
        for part in match[2].split("."):
            found = (found or {}).get(part, "")
        return str(found)

    return {
        key: _FIELD.sub(value, text.replace("{{ns}}", name)) if isinstance(text, str) else text
        for key, text in step.items()
    }


class Markers:
    """The markers of one case that is played on one server."""

    def __init__(self, name: str, said: str) -> None:
        """``name`` is that of the case's namespace, ``said`` all that its requests say."""
        self._name = name
        self._said = said
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._generated: dict[str, str] = {}

    def value(self, value: Any, key: str = "") -> Any:
        """The value with markers."""
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, list):
            return _sorted([self.value(item, key) for item in value], key)
        return self._text(value) if isinstance(value, str) else value

    def _map(self, value: dict[str, Any]) -> dict[str, Any]:
        prefix, name = value.get("generateName"), value.get("name")
        if isinstance(prefix, str) and isinstance(name, str) and name.startswith(prefix):
            self._generated.setdefault(name, f"{prefix}<random>")
        result = {self._text(key): self.value(item, key) for key, item in value.items()}
        version = value.get("resourceVersion")
        if isinstance(version, str) and version.isdecimal() and f'"{version}"' not in self._said:
            # The versions of lists and bookmarks are those of the whole store, which others write to.
            marker = f"<version {len(self._versions) + 1}>" if "uid" in value else "<version>"
            result["resourceVersion"] = (
                self._versions.setdefault(version, marker) if "uid" in value else marker
            )
        return result | ({"continue": "<continue>"} if value.get("continue") else {})

    def _text(self, text: str) -> str:
        for name, marker in self._generated.items():
            text = text.replace(name, marker)
        text = _UUID.sub(self._uid, text.replace(self._name, "{{ns}}"))
        return _TIME.sub(lambda match: match[0] if match[0] in self._said else "<time>", text)

    def _uid(self, match: re.Match[str]) -> str:
        if match[0] in self._said:
            return match[0]
        return self._uids.setdefault(match[0], f"<uid {len(self._uids) + 1}>")


def _sorted(values: list[Any], key: str) -> list[Any]:
    """Managers of fields by name, where Kubernetes goes by seconds; conflicts, which it does not sort.

    Ages in the cells of a table are those of objects that a case has just made.
    """
    if key == "cells":
        return ["<age>" if isinstance(one, str) and _AGE.fullmatch(one) else one for one in values]
    if key == "managedFields":
        return sorted(values, key=lambda one: (one.get("operation", ""), one.get("manager", "")))
    if key == "causes" and any(one.get("reason") == "FieldManagerConflict" for one in values):
        return sorted(values, key=lambda one: (one["message"], one["field"]))
    return values
