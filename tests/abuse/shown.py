"""What may be put into an event, a pod's message, a log line and a gRPC answer."""

MOST_CHARACTERS = 8192


def assert_fit_to_be_shown(text: str) -> None:
    """It is UTF-8, not too long, and no terminal is told anything by it."""
    text.encode()
    assert len(text) <= MOST_CHARACTERS, f"{len(text)} characters: {text[:200]}"
    hostile = [letter for letter in text if not letter.isprintable() and letter != "\n"]
    assert not hostile, (hostile, text[:200])
