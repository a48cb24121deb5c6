"""The tree of errors: as it is drawn, and each kind what Python code around it would catch it as."""

from __future__ import annotations

import inspect
import re

import pytest

from paired_servicebus.core import errors

CLASSES = {
    name: cls for name, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.PairedError)
}


def drawn() -> dict[str, tuple[str, ...]]:
    """Every error of the module's drawing with its bases, as the drawing says them."""
    found: dict[str, tuple[str, ...]] = {"PairedError": ("Exception",)}
    above: list[str] = ["PairedError"]
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ([│├└─ ]+)(\w+Error)(?: \((\w+)\))?", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        above[depth:] = [match[2]]
        found[match[2]] = (above[depth - 1], match[3]) if match[3] else (above[depth - 1],)
    return found


def test_the_drawing_shows_every_error_under_its_bases() -> None:
    assert drawn() == {name: tuple(base.__name__ for base in cls.__bases__) for name, cls in CLASSES.items()}


def test_every_error_says_what_it_is() -> None:
    assert [name for name, cls in CLASSES.items() if not cls.__doc__] == []


@pytest.mark.parametrize(
    "error",
    [
        errors.BacklogMessageSizeError(size=300_000, limit=262_144, message_id="m-1"),
        errors.ReservedPropertyError("x-ms-path"),
    ],
)
def test_what_is_the_callers_own_to_mend_is_a_value_error(error: errors.SendError) -> None:
    assert isinstance(error, ValueError)


def test_a_message_too_large_tells_both_sizes() -> None:
    """SPEC.md section 7.4: "`BacklogMessageSizeError` with both sizes"."""
    error = errors.BacklogMessageSizeError(size=300_000, limit=262_144, message_id="m-1")
    assert (error.size, error.limit) == (300_000, 262_144)
    assert all(word in str(error) for word in ("'m-1'", "300000", "262144"))
