"""What is wrong with the text of an expression, and where (cel-go, common/error.go and errors.go)."""

from __future__ import annotations

_MOST_SHOWN = 100
_LONGEST_LINE = 16_384


class ExpressionInvalid(ValueError):
    """An expression is refused before it runs. ``issues`` are positions, in characters, and messages."""

    def __init__(self, message: str, at: int = -1, more: tuple[tuple[int, str], ...] = ()) -> None:
        self.issues = ((at, message), *more)
        texts = (text if place < 0 else f"{text} at character {place}" for place, text in self.issues)
        super().__init__("; ".join(texts))

    def shown(self, expression: str) -> str:
        """The issues as Kubernetes shows them, each with its line of the expression and a mark below it."""
        placed = sorted(self.issues[:_MOST_SHOWN], key=lambda issue: issue[0])
        texts = [_shown(expression, at, message) for at, message in placed]
        if len(self.issues) > _MOST_SHOWN:
            texts.append(f"{len(self.issues) - _MOST_SHOWN} more errors were truncated")
        return "\n".join(texts)


def _shown(expression: str, at: int, message: str) -> str:
    if at < 0:
        return f"ERROR: <input>:-1:0: {message}"
    before = expression[:at]
    line, column = before.count("\n"), at - (before.rfind("\n") + 1)
    head = f"ERROR: <input>:{line + 1}:{column + 1}: {message}"
    snippet = expression.split("\n")[line].replace("\t", " ")
    if len(snippet.encode()) > _LONGEST_LINE:
        return head
    # Characters that take several bytes are taken to be twice as wide.
    dots = "".join("\uff0e" if ord(character) > 127 else "." for character in snippet[:column])
    mark = "\uff3e" if ord(snippet[column : column + 1] or ".") > 127 else "^"
    return f"{head}\n | {snippet}\n | {dots}{mark}"
