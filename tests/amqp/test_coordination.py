"""The rule of a transaction's entities."""

from __future__ import annotations

import pytest

from servicebus_amqp.nodes.coordination import EntityScope
from servicebus_amqp.nodes.request_ends import AmqpRefusal


@pytest.mark.parametrize(
    ("spans", "acts", "refused"),
    [
        (True, "send a, send b, receive a, send a", None),
        (True, "receive a, send b, send c", None),
        (True, "send a, receive b", "receive b"),
        (True, "receive a, receive b", "receive b"),
        (False, "send a, receive a", None),
        (False, "send a, send b", "send b"),
        (False, "receive a, send b", "send b"),
    ],
)
def test_only_a_spanning_session_sends_to_other_entities(spans: bool, acts: str, refused: str | None) -> None:
    """The first one names the entity of its receivers."""
    scope = EntityScope(spans_entities=spans)
    for act in acts.split(", "):
        way, entity = act.split()
        if act == refused:
            with pytest.raises(AmqpRefusal, match=r"cannot span multiple top-level entities .*has 'a'") as found:
                scope.admit(entity, is_send=way == "send")
            assert found.value.condition == "amqp:not-allowed"
        else:
            scope.admit(entity, is_send=way == "send")
        assert scope.entity == "a"
