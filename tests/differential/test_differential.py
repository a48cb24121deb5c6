"""Beside the SDK: the same program, under one fault that lasts a moment, in each phase (SPEC.md sections 3 to 6).

The pairing raises where the SDK raises, never elsewhere; it takes at most twice as long, or a second more, and ten
seconds for each busy answer; it parks nothing, with hold and without.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paired_servicebus.core.model.entity_state import State

from .cases import CASES, Case, run


def marks_of(case: Case) -> list[pytest.MarkDecorator]:
    if case.is_other_side:
        return [pytest.mark.long]
    return [pytest.mark.slow] if case.is_slow else []


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case), marks=marks_of(case)) for case in CASES])
async def test_the_pairing_is_never_worse_than_the_sdk(
    case: Case, record_property: Callable[[str, object], None]
) -> None:
    """A routine detach or a single cut is no error at the caller (the SDK beside it raises none either) and no
    failover. An open link whose token ran out is opened again with a new one, once, in the same call. Server busy: the
    sender waits inside the call (send, schedule or cancel)."""
    found = await run(case)
    record_property("outcomes", str(found))
    for name, ours in found.ours.items():
        assert (ours.raised, ours.results) == (found.sdk.raised, found.sdk.results), name
        assert case.shortest() <= ours.seconds <= case.longest(found.sdk), (name, ours.seconds, found.sdk.seconds)
        assert found.states[name] in (State.HEALTHY, State.UNKNOWN), name
    assert found.parked == 0
