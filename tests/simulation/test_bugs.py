"""The checks can fail: every mistake that is put in on purpose is caught."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import catch
from tests.simulation.pairing_campaign import PAIRING
from tests.simulation.planted_bugs import BUGS
from tests.simulation.planted_bugs.bug import WITHIN, Bug


def test_there_are_bugs_enough_and_each_is_another() -> None:
    assert len(BUGS) >= 40
    assert sum(bug.is_shipped for bug in BUGS) >= 30
    assert len({bug.what for bug in BUGS}) == len(BUGS)
    assert len({repr((bug.parts, bug.patches)) for bug in BUGS}) == len(BUGS)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert catch(PAIRING, bug) is not None, f"not caught within {WITHIN} seeds"
