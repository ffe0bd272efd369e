"""Whatever form a secret has in a text, and however deep it lies, nothing of it is left when it is masked."""

import base64
import json
import shlex
from collections.abc import Callable

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.gather.masking import masked_text
from tests.examples import examples

MARK = "zq7"
"""Each part of a secret begins so: a part that is left is seen, whatever cuts the secret."""

KEYS = st.sampled_from(
    [
        *("password", "db_password", "PASSWORD", "PGPASSWD", "secret_key", "client-secret", "token"),
        *("accessToken", "api_key", "API-KEY", "aws_secret_access_key", "private.key", "credentials", "pwd"),
    ]
)
PARTS = st.text("abcXYZ019", max_size=9).map(MARK.__add__)


def secrets(separators: str) -> st.SearchStrategy[str]:
    """Up to four parts with one of the separators between each two."""
    parts = st.lists(st.tuples(PARTS, st.sampled_from(separators)), min_size=1, max_size=4)
    return parts.map(lambda found: "".join(part + separator for part, separator in found)[:-1])


def basic(secret: str) -> str:
    """A user and a password as HTTP sends them; MARK is there in base64, too."""
    return base64.b64encode(b"ab:" + secret.encode()).decode()


class Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block, as Kubernetes does."""


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def dumped(content: object) -> str:
    """YAML as Kubernetes writes it: long lines are not folded."""
    return str(yaml.dump(content, Dumper=Dumper, width=1 << 20))


ANY = secrets(" @:/=+,;!?#%&*'\"\\|}]$~")
WORD = secrets("@:/=+!?%*|$~")
FORMS = st.one_of(
    st.builds(lambda key, secret: json.dumps({"a": 1, key: secret, "b": 2}), KEYS, ANY),
    st.builds(lambda key, secret: json.dumps({key: {"x": [secret, {"y": secret}]}}, indent=2), KEYS, ANY),
    st.builds(lambda key, secret: json.dumps({"name": key, "value": secret}), KEYS, ANY),
    st.builds(lambda key, secret: json.dumps(["run", f"--{key}", secret, "--x"]), KEYS, ANY),
    st.builds(lambda key, secret: dumped({"a": 1, key: secret, "z": "b"}), KEYS, ANY),
    st.builds(lambda key, secret: f"spec:\n  {key}: |\n    {secret}\n    {secret}\n  z: 1\n", KEYS, ANY),
    st.builds(lambda key, secret: dumped({key: [secret, secret]}), KEYS, ANY),
    st.builds(lambda key, secret: f"run --{key} {shlex.quote(secret)} --verbose", KEYS, ANY),
    st.builds(lambda key, secret: f"run --{key}={shlex.quote(secret)} --verbose", KEYS, ANY),
    st.builds(lambda key, secret: f"{key} = {secret}", KEYS, WORD),
    st.builds("curl -u admin:{} https://host/".format, WORD),
    st.builds("got https://user:{}@host:8443/path".format, WORD),
    st.builds(lambda key, secret: f"GET /a?b=1&{key}={secret}&c=2", KEYS, secrets(".-_~%")),
    st.builds(lambda secret: f"Authorization: Basic {basic(secret)}", WORD),
    st.builds("curl -H 'Authorization: Basic {}' https://host/".format, WORD.map(basic)),
    st.builds("X-Api-Key: {}".format, WORD),
    st.builds("Set-Cookie: session={}; Path=/".format, WORD),
)
WRAPPINGS: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(
    [
        lambda text: json.dumps({"level": "info", "event": text, "gpu": "GPU-1"}),
        lambda text: json.dumps({"items": [{"message": text}]}, indent=1),
        lambda text: dumped({"status": {"message": text}}),
        lambda text: f'time=10:00 level=info msg={json.dumps(text)} node="a"',
        lambda text: f"I0102 03:04:05 main.go:7] {text}",
        lambda text: f"[main] {json.dumps({'request': text})} failed",
        lambda text: f"first\n{text}\nlast\n",
    ]
)


@given(form=FORMS, wrappings=st.lists(WRAPPINGS, max_size=3))
@settings(max_examples=examples(400), deadline=None)
def test_nothing_of_a_generated_secret_is_left(form: str, wrappings: list[Callable[[str], str]]) -> None:
    for wrap in wrappings:
        form = wrap(form)

    masked = masked_text(form)

    assert MARK not in masked, form
    assert basic(MARK)[4:8] not in masked, form
    assert masked_text(masked) == masked
