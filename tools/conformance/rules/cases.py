from __future__ import annotations


def written():
    return []
