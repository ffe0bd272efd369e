"""Runs openssl, which makes certificates; without it, a test that comes to need one is skipped."""

from __future__ import annotations

import subprocess

import pytest


def openssl(*arguments: str) -> str:
    """Run it; what it printed."""
    try:
        done = subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs openssl (install it)")
    return done.stdout


def make_certificate(*arguments: str) -> None:
    """Make a certificate that is signed by itself, with a key of its own."""
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *arguments)
