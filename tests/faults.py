"""What embedded clusters note of faults of their own; a test that causes one takes it."""

from envtest.embedded.server import Noted

NOTED = Noted()
