"""Reads and writes Kubernetes quantities (apimachinery's resource.Quantity) as exact numbers."""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Self

_STRICT = re.compile(r"^(?:[+-]?(?:\d+\.?\d*|\.\d+))(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,4})?$", re.ASCII)
_PARTS = re.compile(
    r"(?P<sign>[+-]?)0*+(?P<whole>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?+"
    r"(?P<suffix>[eEinumkKMGTP]*+[+-]?[0-9]*+)"
)
_POWER_OF_1024 = {suffix: power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_POWER_OF_10 = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_OF_1024 = {power: suffix for suffix, power in _POWER_OF_1024.items()}
_SUFFIX_OF_10 = {power: suffix for suffix, power in _POWER_OF_10.items()}

_LARGEST = Decimal(2**63 - 1)
_NANO = Decimal("1e-9")
# Any number of 18 decimal digits fits an int64 (maxInt64Factors).
_SHORT_DIGITS = 18
# positiveScaleInt64 has a function for each of these powers of ten, whose product wraps around.
_WRAPPING_POWERS = (0, 1, 2, 3, 6, 9)
_LIMITS = (decimal.InvalidOperation, decimal.Overflow)
_EXACT = decimal.Context(
    prec=30_000,
    Emax=decimal.MAX_EMAX,
    Emin=decimal.MIN_EMIN,
    traps=[*_LIMITS, decimal.Inexact, decimal.Rounded],
)
_AWAY_FROM_ZERO = decimal.Context(
    prec=30_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_UP, traps=[*_LIMITS]
)


class Format(StrEnum):
    """How a quantity is written: ``12Mi``, ``12M`` or ``12e6``."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number and how it is written, as in apimachinery's resource.Quantity.

    Two quantities are equal when their numbers are. ``value`` keeps the power of ten of its text (``1000m``
    is 1000E-3). ``text`` is the original if apimachinery prints that again. ``wide``: apimachinery holds the
    number as an arbitrary-precision decimal (infDecAmount), not as an int64 and a power of ten (int64Amount).
    Its AsInt64 never finds an integer in a wide one, whatever the value.
    """

    value: Decimal
    format: Format = field(default=Format.DECIMAL_SI, compare=False)
    text: str = field(default="", compare=False)
    wide: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``text`` as ParseQuantity does, which also reads a missing number as 0 (``Gi``, ``-``).

        Numbers are rounded away from zero to billionths; a BinarySI above 2^63-1 is capped. Raises ValueError
        if the text is not a quantity, and for more than 30,000 digits.
        """
        match = _PARTS.fullmatch(text) if text else None
        if match is None:
            raise ValueError(f"{text[:64]!r} is not a quantity such as 80Gi, 1500m or 1e3")
        if text == "0":
            return cls(Decimal(0), text=text)
        form, exponent = _meaning_of(match["suffix"])
        whole, fraction = match["whole"] or "0", match["fraction"] or ""
        short = _short_number(whole, fraction, form, exponent)
        if short is None:
            value, form = _long_number(text[: match.start("suffix")], form, exponent)
            return cls(value, form, wide=True)
        value, canonical = short
        if match["sign"] == "-" and value:
            value = value.copy_negate()
        return cls(value, form, text if canonical else "")

    def __str__(self) -> str:
        """The canonical form. apimachinery drops a power of ten or 1024 that has no suffix; so does this."""
        if self.text:
            return self.text
        if not self.value:
            return "0"
        negative, digits, exponent = _parts(self.value)
        kept = digits.rstrip("0")
        exponent += len(digits) - len(kept)
        if self.format is Format.BINARY_SI and exponent >= 0 and self.value.copy_abs() >= 1024:
            return _binary_text(int(self.value))
        number = f"{'-' * negative}{kept}{'0' * (exponent % 3)}"
        exponent -= exponent % 3
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{number}e{exponent}" if exponent else number
        return number + _SUFFIX_OF_10.get(exponent, "")

    def plus(self, other: Quantity) -> Quantity:
        """The sum, in this format unless this is zero. Raises OverflowError past 30,000 digits."""
        form = self.format if self.value else other.format
        if not self.wide and not other.wide:
            if not other.value:
                return Quantity(self.value, form)
            if not self.value:
                return Quantity(other.value, form)
        try:
            total = _EXACT.add(self.value, other.value)
        except decimal.DecimalException as error:
            raise OverflowError("the quantities are too far apart to be added exactly") from error
        _, _, exponent = _parts(total)
        short = all(_fits_int64(value, exponent) for value in (self.value, other.value, total))
        return Quantity(total, form, wide=self.wide or other.wide or not short)

    def minus(self, other: Quantity) -> Quantity:
        """The difference, in this format unless this is zero. Raises OverflowError past 30,000 digits."""
        negated = other.value.copy_negate() if other.value else other.value
        if not other.wide and not self.wide and negated and self._wraps(other):
            negated = other.value
        return self.plus(Quantity(negated, other.format, wide=other.wide))

    def _wraps(self, other: Quantity) -> bool:
        """Whether the other's int64 is -2^63, which negated is itself again; apimachinery then adds it."""
        _, _, own = _parts(self.value)
        _, _, exponent = _parts(other.value)
        if other.value.scaleb(-exponent, _EXACT) != -(2**63):
            return False
        return not self.value or (exponent <= own and _fits_int64(self.value + other.value, exponent))

    def rounded_up(self, places: int) -> Quantity:
        """The number rounded away from zero to so many decimal places (RoundUp)."""
        if _parts(self.value)[2] >= -places:
            return self
        value = self.value.quantize(Decimal(1).scaleb(-places), context=_AWAY_FROM_ZERO)
        return self if value == self.value else Quantity(value, self.format)

    def as_int64(self) -> int | None:
        """The integer, None if apimachinery's AsInt64 finds none, as in ``1.5Ki`` and ``1000m``."""
        _, _, exponent = _parts(self.value)
        if self.wide or exponent < 0:
            return None
        if not self.value:
            return 0
        return int(self.value) if -(2**63) <= self.value < 2**63 else None

    def scaled(self, places: int) -> int:
        """The int64 of ScaledValue: units for 0 places (Value), thousandths for 3 (MilliValue).

        It is rounded away from zero, a wide negative one up. If it does not fit an int64 the result is as
        wrong as that of apimachinery.
        """
        negative, digits, exponent = _parts(self.value)
        if not self.value:
            return 0
        shift = exponent + places
        unscaled = int(Decimal(digits)) * (-1 if negative else 1)
        return _wide_scaled(unscaled, shift) if self.wide else _short_scaled(unscaled, shift)

    def approximate(self) -> float:
        """The double of AsApproximateFloat64: the digits times the power of ten, both rounded before."""
        negative, digits, exponent = _parts(self.value)
        digits_alone = float(f"-{digits}" if negative else digits)
        return digits_alone * _float_power_of_10(exponent) if exponent else digits_alone


def _parts(value: Decimal) -> tuple[bool, str, int]:
    """Whether the number is negative, its digits, and the power of ten that they are multiplied by."""
    negative, digits, exponent = value.as_tuple()
    return bool(negative and value), "".join(map(str, digits)), int(exponent)


def _meaning_of(suffix: str) -> tuple[Format, int]:
    """The format and the exponent (of 2 for BinarySI, else of 10) that a suffix means."""
    if suffix in _POWER_OF_10:
        return Format.DECIMAL_SI, _POWER_OF_10[suffix]
    if suffix in _POWER_OF_1024:
        return Format.BINARY_SI, 10 * _POWER_OF_1024[suffix]
    digits = suffix[1:].lstrip("+-").lstrip("0")
    if suffix[0] not in "eE" or not suffix[-1].isdigit() or not suffix[1:].lstrip("+-").isdigit():
        raise ValueError(f"{suffix[:64]!r} is not the suffix of a quantity such as Gi, m or e3")
    exponent = int(digits or "0") if len(digits) <= 19 else 2**64
    exponent = -exponent if suffix[1] == "-" else exponent
    if not -(2**63) <= exponent < 2**63:
        raise ValueError(f"{suffix[:64]!r} is too large an exponent for a quantity")
    return Format.DECIMAL_EXPONENT, _as_signed(exponent, 32)


def _short_number(whole: str, fraction: str, form: Format, exponent: int) -> tuple[Decimal, bool] | None:
    """The magnitude if an int64 and a power of ten hold it, and whether its text is canonical; else None."""
    digits = whole + fraction
    if form is Format.BINARY_SI:
        # ParseQuantity estimates the decimal digits of 2^exponent as exponent * 3 / 10, and a quick path is
        # taken only for fewer than 15 digits together. A canonical text is one it keeps for printing.
        if fraction or 14 - len(whole) - exponent * 3 // 10 < 0:
            return None
        number = int(whole) << exponent
        return (Decimal(number), int(whole) & 7 != 0) if number < 2**63 else None
    scale = _as_signed(exponent - len(fraction), 32)
    if len(digits) > _SHORT_DIGITS or scale < -9:
        return None
    canonical = scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
    return Decimal(f"{int(digits)}E{scale}"), canonical


def _long_number(number: str, form: Format, exponent: int) -> tuple[Decimal, Format]:
    """The value, rounded to nine places and capped, and its format."""
    if not any(character.isdigit() for character in number):
        raise ValueError(f"{number[:64]!r} is not the number of a quantity")
    try:
        if form is Format.BINARY_SI:
            value = _EXACT.multiply(Decimal(number), Decimal(2**exponent))
        else:
            value = Decimal(f"{number}E{exponent}")
        if not value:
            return value.copy_abs(), form
        value = value.quantize(_NANO, context=_AWAY_FROM_ZERO)
    except decimal.DecimalException as error:
        raise ValueError(f"{number[:64]!r} and its suffix have more digits than a quantity may") from error
    # ParseQuantity caps only binary numbers, and has no binary suffix for a fraction.
    if form is Format.BINARY_SI and value.copy_abs() > _LARGEST:
        value = _LARGEST.copy_sign(value)
    if form is Format.BINARY_SI and value.copy_abs() < 1:
        form = Format.DECIMAL_SI
    return value, form


def _binary_text(number: int) -> str:
    power = 0
    while number % 1024 == 0:
        number //= 1024
        power += 1
    return f"{number}{_SUFFIX_OF_1024.get(power, '')}"


def _short_scaled(unscaled: int, shift: int) -> int:
    """An int64 times a power of ten, rounded away from zero.

    In apimachinery a result that does not fit wraps around or is 0, and so it is here.
    """
    if shift < 0:
        magnitude = min(1, abs(unscaled)) if -shift > 19 else -(-abs(unscaled) // 10**-shift)
        return magnitude if unscaled > 0 else -magnitude
    if shift in _WRAPPING_POWERS:
        return _as_signed(unscaled * 10**shift, 64)
    fits = shift <= 19 and -(2**63) <= unscaled * 10**shift < 2**63
    return unscaled * 10**shift if fits else 0


def _wide_scaled(unscaled: int, shift: int) -> int:
    """An arbitrary-precision decimal times a power of ten, rounded up (apimachinery's scaledValue)."""
    if shift == 0:
        return _as_signed(unscaled, 64)
    if shift > 0:
        return _as_signed(_as_signed(unscaled, 64) * (10**shift if shift <= _SHORT_DIGITS else -(2**63)), 64)
    divisor: int = 10**-shift
    if -shift <= _SHORT_DIGITS and unscaled < 2**63 - 1:
        unscaled = _as_signed(unscaled, 64)
        truncated = abs(unscaled) // divisor
        return (truncated if unscaled > 0 else -truncated) + (unscaled % divisor != 0)
    return _as_signed(unscaled // divisor + (unscaled % divisor != 0), 64)


def _fits_int64(value: Decimal, exponent: int) -> bool:
    """Whether an int64 can hold the number as a multiple of this power of ten."""
    return bool(-(2**63) <= value.scaleb(-exponent, _EXACT) < 2**63)


def _as_signed(number: int, bits: int) -> int:
    """The number as a two's complement integer with this many bits, which wraps around."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _float_power_of_10(exponent: int) -> float:
    """The double of Go's math.Pow10, which multiplies or divides two table entries."""
    if exponent > 308:
        return float("inf")
    if exponent < -323:
        return 0.0
    coarse, fine = divmod(abs(exponent), 32)
    if exponent >= 0:
        return float(f"1e{32 * coarse}") * float(f"1e{fine}")
    return float(f"1e-{32 * coarse}") / float(f"1e{fine}")


@lru_cache(maxsize=4096)  # the devices of a node share most of their amounts
def parse_quantity(text: str) -> Decimal:
    """The number of a quantity (``80Gi``, ``1500m``, ``1e3``) in base units.

    It is rounded away from zero to billionths, and capped at 2^63-1. Raises ValueError if the text is not a
    quantity, or only apimachinery's lenient parser takes it for one.
    """
    if len(text) > 64 or not _STRICT.match(text):
        raise ValueError(f"{text[:64]!r} is not a quantity such as 80Gi, 1500m or 1e3")
    value = Quantity.parse(text).value
    return _LARGEST.copy_sign(value) if value.copy_abs() > _LARGEST else value


def format_bytes(count: int) -> str:
    """A whole number of base units in canonical form, which the API server does not rewrite: ``81559Mi``."""
    if count:
        for suffix, power in reversed(_POWER_OF_1024.items()):
            if count % 1024**power == 0:
                return f"{count // 1024**power}{suffix}"
    return str(count)
