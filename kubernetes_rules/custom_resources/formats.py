"""The formats of strings that a schema can name (k8s.io/kube-openapi/pkg/validation/strfmt)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache

from kubernetes_rules.cel.library_format import FORMATS as CEL_FORMATS
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.times import parse_duration
from kubernetes_rules.cel.types import CelError

_HOST_CHARACTER = r"a-zA-Z0-9\p{S}\p{L}"
_HOSTNAME = (
    rf"^([{_HOST_CHARACTER}]((-?[{_HOST_CHARACTER}]{{0,62}})?)"
    rf"|([{_HOST_CHARACTER}](([a-zA-Z0-9-\p{{S}}\p{{L}}]{{0,61}}[{_HOST_CHARACTER}])?)(\.)){{1,}}"
    r"([a-zA-Z\p{L}]){2,63})$"
)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]++"
_QUOTED = r'"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\x20-\x7e\t\x80-\U0010ffff])*"'
_ADDRESS = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@(?:{_ATOM}(?:\.{_ATOM})*)"
_PHRASE = rf"(?:{_ATOM}|{_QUOTED})(?:[ \t.]*(?:{_ATOM}|{_QUOTED}))*"
_EMAIL = re.compile(rf"[ \t]*(?:{_ADDRESS}|(?:{_PHRASE})?[ \t.]*<{_ADDRESS}>)[ \t]*")
_HEX = "[0-9a-fA-F]"
_MAC = re.compile(
    rf"{_HEX}{{2}}([:-]){_HEX}{{2}}(?:\1{_HEX}{{2}}){{4}}(?:(?:\1{_HEX}{{2}}){{2}}|(?:\1{_HEX}{{2}}){{14}})?"
    rf"|{_HEX}{{4}}(?:\.{_HEX}{{4}}){{2}}(?:\.{_HEX}{{4}}|(?:\.{_HEX}{{4}}){{7}})?"
    rf"|{_HEX}{{12}}|{_HEX}{{16}}|{_HEX}{{40}}"
)
_BYTE_COLOR = r"(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])"
_RGB = re.compile(rf"rgb\([\s]*{_BYTE_COLOR}\s*,\s*{_BYTE_COLOR}\s*,\s*{_BYTE_COLOR}\s*\)", re.ASCII)
_CREDIT_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}",
    re.ASCII,
)
_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SCALA_DURATION = re.compile(r"(\d+)\s*([A-Za-z\u00b5]+)", re.ASCII)
_UNITS = ("ns", "us", "\u00b5s", "ms", "s", "sec", "m", "h", "hr", "d", "w", "wk")
_UNIT_BEGINNINGS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_LARGEST_INT = 2**63 - 1


def _matches(pattern: str, flags: re.RegexFlag = re.ASCII) -> Callable[[str], bool]:
    expression = re.compile(pattern, flags)
    return lambda text: expression.fullmatch(text) is not None


def _uuid(version: str, variant: str) -> Callable[[str], bool]:
    digits = "[0-9a-f]"
    return _matches(
        f"{digits}{{8}}-?{digits}{{4}}-?{version}-?{variant}-?{digits}{{12}}", re.ASCII | re.IGNORECASE
    )


def _is_hostname(text: str) -> bool:
    if compiled(_HOSTNAME).search(text) is None or len(text.encode()) > 255:
        return False
    return all(len(part.encode()) <= 63 for part in text.split("."))


def _without_leading_zeros(text: str, digits: str) -> str:
    """The address with shorter numbers: the forked parser of k8s.io/utils/net takes leading zeros."""
    return re.sub(rf"(?<![{digits}])0+(?=[{digits}])", "", text)


def _is_sloppy_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(_without_leading_zeros(text, "0-9"))
    except ValueError:
        return False
    return text.isascii()


def _is_sloppy_ipv6(text: str) -> bool:
    return _is_ipv6(_without_leading_zeros(text, "0-9a-fA-F"))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def _is_ipv4(text: str) -> bool:
    first = re.search("[.:]", text)
    if first is None:
        return False
    return _is_sloppy_ipv4(text) if first[0] == "." else "." in text and _is_sloppy_ipv6(text)


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not re.fullmatch("[0-9]+", bits):
        return False
    if _is_sloppy_ipv4(address):
        return int(bits) <= 32
    return _is_sloppy_ipv6(address) and int(bits) <= 128


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text, flags=re.ASCII)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum((index + 1) * value for index, value in enumerate(values)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text, flags=re.ASCII)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum((3 if index % 2 else 1) * int(digit) for index, digit in enumerate(digits)) % 10 == 0


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _CREDIT_CARD.fullmatch(digits):
        return False
    doubled = (int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits)))
    return sum(value // 10 + value % 10 for value in doubled) % 10 == 0


def _is_duration(text: str) -> bool:
    """Whether it is a duration of Go, or contains one of Scala such as ``22 ns``."""
    try:
        parse_duration(text)
    except CelError:
        pass
    else:
        return True
    found = _SCALA_DURATION.findall(text)
    if any(int(count) > _LARGEST_INT for count, _ in found):
        return False
    units = [unit.lower() for _, unit in found]
    return any(unit in _UNITS or unit.startswith(_UNIT_BEGINNINGS) for unit in units)


def _of_cel(name: str) -> Callable[[str], bool]:
    return lambda text: not CEL_FORMATS[name].errors(text)


_HEX4 = "[0-9a-f]{4}"
_CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
    "uri": _of_cel("uri"),
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uuid": _uuid(_HEX4, _HEX4),
    "uuid3": _uuid("3[0-9a-f]{3}", _HEX4),
    "uuid4": _uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "uuid5": _uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": lambda text: (
        len(text) == 11 and re.fullmatch(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None
    ),
    "hexcolor": _matches("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": lambda text: _RGB.fullmatch(text) is not None,
    "byte": _of_cel("byte"),
    "password": lambda _: True,
    "date": _of_cel("date"),
    "duration": _is_duration,
    "datetime": _of_cel("datetime"),
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_SHORT_NAME, text) is not None,
    "k8slongname": lambda text: (
        len(text) <= 253 and re.fullmatch(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*", text) is not None
    ),
}
_NUMBER_FORMATS = {"integer": frozenset({"int32", "int64"}), "number": frozenset({"float", "double"})}


def is_known(name: str) -> bool:
    """Whether a string is checked against this format; dashes do not count."""
    return name.replace("-", "") in _CHECKS


def has_format(text: str, name: str) -> bool:
    """Whether a text has a known format."""
    return _CHECKS[name.replace("-", "")](text)


@lru_cache(maxsize=256)
def is_supported(name: str, types: tuple[str, ...]) -> bool:
    """Whether the format has an effect on values of these types; Kubernetes warns of others and ignores them.

    Source: StripUnsupportedFormatsPostProcessorForVersion in pkg/apiserver/validation/formats.go.
    """
    kind = types[0] if len(types) == 1 else ""
    if kind in ("", "string"):
        return is_known(name)
    return name in _NUMBER_FORMATS.get(kind, ())
