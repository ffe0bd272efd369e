"""Bodies are read as Go reads them: one bad object never breaks the clients of a kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.schema.bodies import BodyError, read_json, read_yaml
from envtest.embedded.schema.decoding import Decoder, DecodingError
from envtest.embedded.schema.texts import TextError, read_bytes, read_time
from envtest.embedded.schema.types import FieldType, type_of
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, ask

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


def kind(name: str, api_version: str = "v1") -> FieldType:
    found = type_of(api_version, name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "unexpected end of JSON input (<empty>)"),
        (b'{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":[1 2]}', "invalid character '2' after array element"),
        (b"\xff\xfe", "(fffe)"),
        (b"not json", "invalid character 'o' in literal null (expecting 'u')"),
        (b'{"a":"\x00"}', r"invalid character '\x00' in string literal"),
        (b'{"a":"\\u12"}', "invalid character '\"' in \\u hexadecimal character escape"),
        (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
    ],
)
def test_a_broken_body_is_refused_in_the_words_of_go(text: bytes, words: str) -> None:
    with pytest.raises(BodyError) as caught:
        read_json(text)

    assert words in str(caught.value)


def test_what_is_no_unicode_is_replaced(server: EmbeddedApiServer) -> None:
    body = b'{"metadata":{"name":"c"},"data":{"half":"\\ud800 \\ud83d\\ude00","bytes":"\xff"}}'

    answer = ask(server, "POST", CONFIG_MAPS, body)

    assert answer.code == 201
    assert ask(server, "GET", CONFIG_MAPS).body["items"][0]["data"] == {"half": "� 😀", "bytes": "�"}


def test_repeated_fields_are_noted_and_the_last_one_counts(server: EmbeddedApiServer) -> None:
    body = b'{"metadata":{"name":"c"},"data":{"a":"1","a":"2"}}'

    strict = ask(server, "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    lax = ask(server, "POST", CONFIG_MAPS, body)

    assert (strict.code, lax.code) == (400, 201)
    assert strict.body["message"].endswith('strict decoding error: duplicate field "data.a"')
    assert (lax.headers["warning"], lax.body["data"]) == ('299 - "duplicate field \\"data.a\\""', {"a": "2"})


def test_a_repeated_object_is_read_into_the_first_one(server: EmbeddedApiServer) -> None:
    body = b'{"metadata":{"name":"c"},"data":{"a":"1"},"data":{"b":"2"}}'

    answer = ask(server, "POST", CONFIG_MAPS, body)

    assert answer.body["data"] == {"a": "1", "b": "2"}


def test_repeated_keys_of_yaml_are_told_with_their_lines(server: EmbeddedApiServer) -> None:
    body = b"metadata: {name: c}\ndata:\n  a: b\ndata:\n  c: d\n  c: e\n"
    in_yaml = "application/yaml"

    strict = ask(server, "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body, content_type=in_yaml)
    lax = ask(server, "POST", CONFIG_MAPS, body, content_type=in_yaml)

    lines = ['line 6: key "c" already set in map', 'line 4: key "data" already set in map']
    assert "strict decoding error: yaml: unmarshal errors:\n  line " in strict.body["message"]
    assert all(line in strict.body["message"] for line in lines)
    assert lax.headers["warning"].count("already set in map") == len(lines)
    assert lax.body["data"] == {"c": "e"}


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    text = b"a: 1:30\nb: 2020-01-01\nc: y\nd: 010\n5: f\ntrue: 1.0\nh: ~\n---\nsecond: 1\n"

    found = read_yaml(text)

    assert found == {"a": "1:30", "b": "2020-01-01", "c": True, "d": 8, "5": "f", "true": 1, "h": None}


@pytest.mark.parametrize(
    ("text", "at"), [("!!", 0), ("YQ", 0), ("YQ==YQ==", 4), ("YWJj!", 4), ("Y", 0), ("-_-_", 0)]
)
def test_wrong_base64_is_refused_where_go_refuses_it(server: EmbeddedApiServer, text: str, at: int) -> None:
    with pytest.raises(TextError, match=f"illegal base64 data at input byte {at}$"):
        read_bytes(text)
    assert ask(server, "POST", SECRETS, {"metadata": {"name": "s"}, "data": {"a": text}}).code == 400


def test_base64_is_stored_as_go_writes_it() -> None:
    assert [read_bytes(text) for text in ("Y\nQ==", "YR==", "")] == ["YQ==", "YQ==", ""]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2020-01-01T00:00:00.5+01:00", "2019-12-31T23:00:00Z"),
        ("2020-01-01T1:00:00Z", "2020-01-01T01:00:00Z"),
        ("2020-13-01T00:00:00Z", "month out of range"),
        ("2020-02-30T00:00:00Z", "day out of range"),
        ("2020-01-01T00:00:00", 'cannot parse "" as "Z07:00"'),
        ("2020-01-01", 'cannot parse "" as "T"'),
    ],
)
def test_times_are_read_as_go_reads_them(text: str, wanted: str) -> None:
    try:
        found = read_time(text, is_micro=False)
    except TextError as error:
        found = str(error)

    assert found.endswith(wanted)


def test_a_time_with_microseconds_needs_six_digits() -> None:
    assert read_time("2020-01-01T00:00:00.123456Z", is_micro=True) == "2020-01-01T00:00:00.123456Z"
    with pytest.raises(TextError, match=r'cannot parse "Z" as "\.000000"'):
        read_time("2020-01-01T00:00:00Z", is_micro=True)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"priority": 3_000_000_000},
            "number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        ({"terminationGracePeriodSeconds": 2**63}, "of type int64"),
        ({"priority": True}, "cannot unmarshal bool into"),
        (
            {"containers": [{"env": [{"value": 5}]}]},
            "number into Go struct field EnvVar.spec.containers.env.value",
        ),
    ],
)
def test_values_have_to_fit_their_types(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodingError) as caught:
        Decoder().decode({"spec": spec}, kind("Pod"))

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind_of_body", "name", "words"),
    [
        ("C\nM", "a", 'no kind "C\\nM" is registered for version "v1"'),
        ("ConfigMap", "a\n", 'ConfigMap "a\\n" is invalid'),
    ],
)
def test_names_are_quoted_in_errors_as_by_go(
    server: EmbeddedApiServer, kind_of_body: str, name: str, words: str
) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": kind_of_body, "metadata": {"name": name}}).encode()
    assert words in ask(server, "POST", CONFIG_MAPS, body).body["message"]


def test_a_list_of_bytes_has_nothing_else_in_it() -> None:
    assert Decoder().decode({"binaryData": {"b": [None, 255]}}, kind("ConfigMap"))["binaryData"] == {
        "b": "AP8="
    }
    with pytest.raises(
        DecodingError, match=r"cannot unmarshal string into .*ConfigMap.binaryData of type uint8"
    ):
        Decoder().decode({"binaryData": {"b": [1, "x"]}}, kind("ConfigMap"))


def test_a_number_is_refused_as_it_was_written(server: EmbeddedApiServer) -> None:
    answer = ask(server, "POST", PODS, b'{"metadata":{"name":"p"},"spec":{"priority":1.0}}')

    assert "cannot unmarshal number 1.0 into Go struct field" in answer.body["message"]


def test_objects_are_completed_as_go_writes_them() -> None:
    node = Decoder().decode({}, kind("Node"))
    pod = {"spec": {"hostNetwork": False, "automountServiceAccountToken": False, "volumes": []}}
    role = Decoder().decode({"rules": []}, kind("Role", "rbac.authorization.k8s.io/v1"))

    assert node["status"]["nodeInfo"]["kubeletVersion"] == ""
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert Decoder().decode(pod, kind("Pod"))["spec"] == {
        "automountServiceAccountToken": False,
        "containers": None,
    }
    assert role["rules"] is None
    assert Decoder(completes=False).decode(pod, kind("Pod")) == pod
