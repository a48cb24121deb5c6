"""The target of an order for some dead letters: its text, its name, and what a person types."""

from __future__ import annotations

import pytest
from tests.approval import Approve

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator.action_row import spelled_out, to_type
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import DeadLetters, Scope, dead_letters_of, named


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("3/118", DeadLetters("3", (118,))),
        ("12/118,121,118", DeadLetters("12", (118, 121))),
        ("3", None), ("3/", None), ("/3", None), ("3/0", None), ("3/-1", None), ("3/1,", None), ("3/a", None),
        ("3/1/2", None), ("3/\u0661", None), ("x/1", None), ("", None), ("3/1 2", None), ("-1/2", None),
    ],
)  # fmt: skip
def test_only_an_index_and_numbers_name_dead_letters(target: str, found: DeadLetters | None) -> None:
    assert dead_letters_of(target) == found
    if found is not None:
        assert dead_letters_of(found.target) == found


def test_the_audit_names_each_and_a_person_types_their_number(approve: Approve) -> None:
    approve.part(named(Scope.DEAD_LETTERS, "3/118,119,120,125"), "rules", has=("118 to", "120", "125 of", "backlog/3"))
    approve.part(named(Scope.DEAD_LETTERS, "3/118"), "rules", has=("118 of", "backlog/3"))
    action, snapshot = BY_ID["redrive-letters"], None
    for targets, typed in ((("3/118",), "1 dead letter"), (("3/118,121", "4/7"), "3 dead letters")):
        command = Command(action_id=action.id, scope=Scope.DEAD_LETTERS, targets=targets)
        asked = to_type(snapshot, command)  # type: ignore[arg-type]
        assert spelled_out(action, command, asked=asked) == typed
