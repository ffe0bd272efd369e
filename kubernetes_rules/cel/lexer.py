"""Splits the text of an expression into CEL's tokens (cel-go, parser/gen/CEL.g4)."""

from __future__ import annotations

import re
from typing import NamedTuple

from kubernetes_rules.cel.syntax import ExpressionInvalid

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
# Possessive quantifiers such as ``*+`` never give characters back, so that long texts take linear time.
_TOKEN = re.compile(
    rf"""
    (?P<space> [\t\ \r\n\f]+ | //[^\n]*+ )
  | (?P<string> [bB]? (?: [rR] (?: \"\"\".*?\"\"\" | '''.*?''' | "[^"\n\r]*+" | '[^'\n\r]*+' )
      | \"\"\" (?: {_ESCAPE} | [^\\] )*? \"\"\"
      | ''' (?: {_ESCAPE} | [^\\] )*? '''
      | " (?: {_ESCAPE} | [^\\"\n\r] )*+ "
      | ' (?: {_ESCAPE} | [^\\'\n\r] )*+ ' ) )
  | (?P<float> [0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ | \.[0-9]+(?:[eE][+-]?[0-9]+)? )
  | (?P<uint> (?: 0x[0-9a-fA-F]+ | [0-9]+ ) [uU] )
  | (?P<int> 0x[0-9a-fA-F]+ | [0-9]+ )
  | (?P<ident> [A-Za-z_][A-Za-z0-9_]*+ )
  | (?P<escaped> `[A-Za-z0-9_.\-/\ ]+` )
  | (?P<operator> == | != | <= | >= | && | \|\| | [\[\]{{}}().,\-!?:+*/%<>] )
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = frozenset(("in", "true", "false", "null"))
_CHARACTERS = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_ESCAPED = re.compile(_ESCAPE)


class SyntaxInvalid(ExpressionInvalid):
    """A text is not a CEL expression."""


class Token(NamedTuple):
    """``kind`` is float, uint, int, string, ident, escaped, end, or the operator or keyword itself."""

    kind: str
    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, and one of kind ``end``. Raises SyntaxInvalid for other characters."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            found_text = text[position : position + 1]
            raise SyntaxInvalid(f"Syntax error: token recognition error at: '{found_text}'", position)
        kind = str(match.lastgroup)
        word = match[0]
        if kind == "operator" or word in _KEYWORDS:
            kind = word
        if kind != "space":
            found.append(Token(kind, word, position, match.end()))
        position = match.end()
    found.append(Token("end", "", len(text), len(text)))
    return found


def literal_string(token: str) -> str | bytes:
    """The value of a string or bytes token. Raises SyntaxInvalid for an invalid code point."""
    is_bytes = token[0] in "bB"
    body = token[1:] if is_bytes else token
    raw = body[0] in "rR"
    # Line ends within a literal are read as "\n", whichever the text has.
    body = (body[1:] if raw else body).replace("\r\n", "\n").replace("\r", "\n")
    quotes = 3 if len(body) >= 6 and body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if is_bytes:
        return _unescaped_bytes(body, raw)
    return body if raw or "\\" not in body else _ESCAPED.sub(_unescaped_character, body)


def _unescaped_character(match: re.Match[str]) -> str:
    escape = match[0][1:]
    if escape in _CHARACTERS:
        return _CHARACTERS[escape]
    code = int(escape, 8) if escape[0].isdigit() else int(escape[1:], 16)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise SyntaxInvalid("invalid unicode code point")
    return chr(code)


def _unescaped_bytes(body: str, raw: bool) -> bytes:
    if raw:
        return body.encode()
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPED.finditer(body):
        parts.append(body[position : match.start()].encode())
        escape = match[0][1:]
        if escape[0] in "uU":
            raise SyntaxInvalid("unable to unescape string")
        if escape in _CHARACTERS:
            parts.append(_CHARACTERS[escape].encode())
        else:
            parts.append(bytes((int(escape, 8) if escape[0].isdigit() else int(escape[1:], 16),)))
        position = match.end()
    parts.append(body[position:].encode())
    return b"".join(parts)
