"""Every journalled kind has its sentence, and the log holds what a person reads."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.pairing_events import KINDS
from paired_servicebus.ui.render.sentences import ROUTINE, event_role, sentence
from paired_servicebus.ui.render.spans import Role
from paired_servicebus.ui.state import log_entries
from tests.approval import Approve


def made_up(kind: type[e.Event]) -> e.Event:
    """An event of the kind with a telling value in every field."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for number, field in enumerate(fields(kind), start=3):
        values[field.name] = {str: f"<{field.name}>", bool: True, int: number, float: float(number)}.get(
            hints[field.name], f"<{field.name}>"
        )
    return kind(**values)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_has_a_sentence_that_says_whom_and_what(kind: type[e.Event]) -> None:
    event = made_up(kind)
    said = sentence(event)
    assert said.subject.strip()
    assert said.text.strip()
    for name in {"entity", "reason", "why", "by", "outcome", "text", "about", "message_id"}:
        if hasattr(event, name):
            assert f"<{name}>" in str(said), f"{kind.kind} does not say its {name}"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"queue": 3}, "backlog/3: paused by ada"),
        ({"destination": "payments"}, "payments: paused by ada"),
        ({}, "paused by ada"),
    ],
)
def test_a_pause_says_of_what(part: dict[str, Any], said: str) -> None:
    assert sentence(e.SyphonPaused(at=1.0, by="ada", **part)).text == said


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_has_a_role(kind: type[e.Event]) -> None:
    assert event_role(made_up(kind)) in Role


def test_a_change_of_state_is_as_loud_as_the_state(made: Any) -> None:
    changed = e.StateChanged(at=made.AT, entity="payments", was="suspect", now="failed over", why="silence")
    assert event_role(changed) is Role.FAILED_OVER


def test_who_did_it_is_said_once(made: Any) -> None:
    event = e.StateChanged(at=made.AT, entity="a", was="healthy", now="forced", why="forced by kim 13:40:00", by="kim")
    assert str(sentence(event)).count("kim") == 1


def test_routine_events_stay_out_of_the_log(made: Any) -> None:
    records = [made.record(made_up(kind), seq) for seq, kind in enumerate(ROUTINE, start=1)]
    assert log_entries.append((), records) == ()


def test_an_outcome_of_another_boot_is_not_taken_for_this_ones(made: Any) -> None:
    act = made.record(e.Commanded(at=made.AT, command="force", target="payments", by="kim"), 7, boot="b1")
    end = made.record(e.CommandEnded(at=made.AT, command_seq=7, outcome="done"), 9, boot="b2")
    assert "done" not in str(log_entries.append((), [act, end])[0].sentence)


def test_the_log_is_bounded_and_says_what_is_missing(made: Any) -> None:
    many = [
        made.record(e.Warned(at=made.AT, about="a", text=str(n)), n + 1) for n in range(log_entries.MAX_ENTRIES + 50)
    ]
    entries = log_entries.append((), many)
    assert len(entries) == log_entries.MAX_ENTRIES
    assert "12 events" in log_entries.append_missed(entries, 12, at=made.AT)[-1].text


def test_the_log_is_as_approved(made: Any, approve: Approve) -> None:
    """One sentence of each kind; the same one again is counted, and an act has its outcome in its line."""
    stuck = [e.DeadLettered(at=made.AT + n, entity="orders", message_id=f"m{n}", queue=3, reason="x") for n in range(3)]
    act = made.record(e.Commanded(at=made.AT, command="force", target="payments", by="kim", why="works"), 7)
    other = made.record(e.Warned(at=made.AT, about="audit", text="something"), 8)
    end = made.record(e.CommandEnded(at=made.AT, command_seq=7, outcome="payments is forced"), 9)
    folded = log_entries.append((), [made.record(event, seq) for seq, event in enumerate(stuck, start=1)])
    answered = log_entries.append(log_entries.append((), [act, other]), [end])
    assert (len(folded), folded[0].at, len(answered)) == (1, made.AT + 2, 2)
    kinds = (f"{kind}: {sentence(made_up(event))}" for kind, event in sorted(KINDS.items()))
    approve(
        "\n".join((*(f"{entry.sentence.subject} {entry.text}" for entry in (*folded, *answered)), "", *kinds)),
        "sentences of events",
    )
