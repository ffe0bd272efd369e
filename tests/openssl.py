"""Runs openssl to make certificates; a test that needs one is skipped where openssl is missing."""

import subprocess

import pytest


def openssl(*arguments: str) -> str:
    """Run openssl and return what it printed."""
    try:
        done = subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs openssl (install it)")
    return done.stdout


def make_certificate(*arguments: str) -> None:
    """Make a self-signed certificate with a new key."""
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *arguments)
