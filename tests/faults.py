"""What embedded clusters note of faults of their own; a test that causes one takes it."""

from __future__ import annotations

from envtest.embedded.server import Noted

NOTED = Noted()
