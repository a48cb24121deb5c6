"""What code written for the SDK may call: its public names and their parameters, compared with ours."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def public_names(thing: Any) -> set[str]:
    """The names that application code may use, and the special ones that make it a context manager or an iterator."""
    special = {"__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__aiter__", "__anext__"}
    return {name for name in dir(thing) if not name.startswith("_")} | (special & set(dir(type(thing))))


def missing_parameters(theirs: Any, ours: Any) -> list[str]:
    """The SDK's parameters of one callable that ours does not accept in the same way, or with another default.

    Further keywords of the SDK's (`**kwargs`) are no parameters: it ignores them, or warns.
    """
    accepted = inspect.signature(ours).parameters
    any_keyword = any(one.kind is Parameter.VAR_KEYWORD for one in accepted.values())
    wanted = [one for one in inspect.signature(theirs).parameters.values() if one.kind not in VARIABLE]
    places = [name for name, one in accepted.items() if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    found: list[str] = []
    for place, one in enumerate(wanted):
        own = accepted.get(one.name)
        if own is None:
            found += [] if any_keyword and one.kind is Parameter.KEYWORD_ONLY else [f"{one.name} is missing"]
        elif own.default != one.default:
            found.append(f"{one.name} defaults to {own.default!r} instead of {one.default!r}")
        elif one.kind is Parameter.POSITIONAL_OR_KEYWORD and places[place : place + 1] != [one.name]:
            found.append(f"{one.name} is not parameter {place + 1}")
    return found


def differences(theirs: Any, ours: Any, *, refused: set[str]) -> list[str]:
    """What an object of the SDK offers and ours does not, one line each. refused: names that ours raises for."""
    found: list[str] = []
    for name in sorted(public_names(theirs) - refused):
        their = getattr(theirs, name)
        try:
            our = getattr(ours, name)
        except AttributeError:
            found.append(f"{name} is missing")
            continue
        if callable(their) and not name.startswith("__"):
            found += [f"{name}: {text}" for text in missing_parameters(their, our)]
    return found
