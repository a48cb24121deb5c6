"""Which message ids were seen within a window."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from servicebus_sandbox.broker.queues.intake import DuplicateWindow


class Compared:
    """Counts comparisons of UUIDs: a set compares where hashes are equal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: Counter[str] = Counter()
        equal = UUID.__eq__

        def counted(one: UUID, other: object) -> bool:
            self.count["=="] += 1
            return bool(equal(one, other))

        monkeypatch.setattr(UUID, "__eq__", counted)


def test_ids_whose_hashes_a_sender_made_equal_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    compared, window = Compared(monkeypatch), DuplicateWindow(60.0)
    ids = [UUID(int=number * (2**61 - 1)) for number in range(200)]
    assert len({hash(one) for one in ids}) == 1
    assert all(window.is_new(one, 0.0) for one in ids)
    assert not any(window.is_new(one, 1.0) for one in ids)
    assert compared.count["=="] == 0


def test_a_uuid_and_its_bytes_are_two_ids() -> None:
    window = DuplicateWindow(60.0)
    assert window.is_new(UUID(int=7), 0.0)
    assert window.is_new(UUID(int=7).bytes, 0.0)


def test_an_id_is_new_again_when_its_window_is_over() -> None:
    window = DuplicateWindow(60.0)
    assert window.is_new(UUID(int=7), 0.0)
    assert window.is_new(UUID(int=7), 60.0)
    assert len(window) == 1
