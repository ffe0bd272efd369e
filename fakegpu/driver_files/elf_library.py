"""Makes shared libraries without code, which ldconfig and other readers of ELF take for real ones.

Names and numbers are those of <elf.h>; the layout is header, two segments, hash table, symbols, strings,
dynamic section, three section headers.
"""

from __future__ import annotations

import struct

LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
"""Where the libraries of a fake machine are below its driver root."""

_MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER, _SEGMENT, _SECTION, _ENTRY, _SYMBOL = 64, 56, 64, 16, 24
_SHARED, _CURRENT = 3, 1
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_STRINGS, _DYNAMIC_SECTION = 3, 6
_DT_END, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 0, 4, 5, 6, 10, 11, 14
_WRITE, _READ = 2, 4
_NO_SYMBOLS = struct.pack("<IIII", 1, 1, 0, 0)
"""A hash table of one bucket, which holds nothing."""


def elf_library(soname: str, machine: str = "x86_64") -> bytes:
    """A library of 64 bits that has this soname and nothing else (System V ABI, chapters 4 and 5)."""
    # One string table for the soname, which is at offset 1, and for the names of the sections.
    strings = b"\0" + soname.encode() + b"\0.dynstr\0.dynamic\0"
    at_hash = _HEADER + 2 * _SEGMENT
    at_symbols = at_hash + len(_NO_SYMBOLS)
    at_strings = at_symbols + _SYMBOL
    # The dynamic section has to be aligned to 8 bytes.
    strings += bytes(-(at_strings + len(strings)) % 8)
    at_dynamic = at_strings + len(strings)
    entries = (
        (_DT_SONAME, 1),
        (_DT_HASH, at_hash),
        (_DT_SYMTAB, at_symbols),
        (_DT_SYMENT, _SYMBOL),
        (_DT_STRTAB, at_strings),
        (_DT_STRSZ, len(strings)),
        (_DT_END, 0),
    )
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in entries)
    at_sections = at_dynamic + len(dynamic)
    sections = (
        bytes(_SECTION)
        + _section(strings.index(b".dynstr"), _STRINGS, at_strings, len(strings), link=0, entry=0)
        + _section(
            strings.index(b".dynamic"), _DYNAMIC_SECTION, at_dynamic, len(dynamic), link=1, entry=_ENTRY
        )
    )
    head = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, _CURRENT, 0),
        *(_SHARED, _MACHINES[machine], _CURRENT, 0, _HEADER, at_sections, 0),
        *(_HEADER, _SEGMENT, 2, _SECTION, 3, 1),
    )
    # One segment maps the whole file, so that addresses are offsets in the file.
    whole = _segment(_LOAD, 0, at_sections + len(sections), 0x1000)
    segments = whole + _segment(_DYNAMIC_SEGMENT, at_dynamic, len(dynamic), 8)
    return head + segments + _NO_SYMBOLS + bytes(_SYMBOL) + strings + dynamic + sections


def _segment(kind: int, offset: int, size: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, _READ | _WRITE, offset, offset, offset, size, size, align)


def _section(name: int, kind: int, offset: int, size: int, *, link: int, entry: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, offset, offset, size, link, 0, 8, entry)
