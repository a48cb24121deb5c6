"""Secrets: a type that never renders itself. Not here: secrets in foreign texts (core.text.masking)."""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.masking import MASK


class Secret:
    """A secret text: repr, str, format, JSON and pickle give a mask. Only `reveal` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value: str | None = value

    def reveal(self) -> str:
        """Return the text, for the one call that needs it.

        Raises:
            ConfigurationError: this is a pickled copy, which has no text.
        """
        if self._value is None:
            raise ConfigurationError("a secret does not travel between processes: read it again where it is needed")
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest((self._value or "").encode(), (other._value or "").encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Secret:
        return self

    def __reduce__(self) -> tuple[Callable[[], Secret], tuple[()]]:
        return _emptied, ()


def _emptied() -> Secret:
    secret = Secret("")
    secret._value = None
    return secret
