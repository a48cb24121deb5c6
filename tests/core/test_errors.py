"""The tree of errors: as it is drawn, and each kind what Python code around it would catch it as."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import Any

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


ARGUMENTS: dict[type[errors.PairedError], dict[str, Any]] = {
    errors.BacklogMessageSizeError: {"size": 300_000, "limit": 262_144, "message_id": "m-1"},
    errors.ImpossibleMessageError: {"message_id": "m-1", "fault": "its time to live is 0"},
    errors.NamespaceUnreachableError: {"is_outage": True},
    errors.RedriveError: {"moved": 3, "in_doubt": (5, 7)},
    errors.PairingClosedError: {"in_doubt": True},
    errors.WireLinkError: {"condition": "amqp:not-found", "peers_error": ("described", 1)},
    errors.WireRequestError: {"condition": "amqp:not-found", "status": 404},
    errors.FleetBoardError: {"is_busy": True, "is_missing": True},
}


def made(kind: type[errors.PairedError]) -> errors.PairedError:
    """An error of this class, with a value for each of its arguments."""
    chosen = ARGUMENTS.get(kind, {})
    return kind(**chosen) if "message_id" in chosen else kind("the text", **chosen)


def test_every_argument_of_an_error_is_tried() -> None:
    """Fails for an error with new arguments that the next test would leave out."""
    own = {kind for kind in CLASSES.values() if "__init__" in vars(kind)}
    assert own - ARGUMENTS.keys() == {errors.WireError, errors.ReservedPropertyError}


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_error_pickles_with_what_it_carries(kind: type[errors.PairedError]) -> None:
    """An application may get it from a worker process: text, attributes and notes are the same."""
    error = made(kind)
    error.add_note("paired namespaces: orders is failed over")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    assert isinstance(copy.copy(error), kind)
