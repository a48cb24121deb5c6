"""When tables are judged and tidied while a journal is followed: seldom enough to cost little."""

from __future__ import annotations

from paired_servicebus.pipeline.ingest.table_maintenance import LARGE, MOST_FILES, crowded, due
from paired_servicebus.pipeline.table_store.manifest import File, Manifest


def manifest(new: int, rows: int, *, known: int = 0) -> Manifest:
    """So many new files of so many events each, and so many messages known."""
    events = tuple(File(f"b{index}", rows, 1, index + 2) for index in range(new))
    return Manifest(judged=1, files={"events": events, "audit": (File("a", known, 1, 1),)})


def test_few_new_files_are_left() -> None:
    assert not due(manifest(MOST_FILES - 1, 1000))


def test_a_quarter_more_is_worth_a_judgement() -> None:
    assert due(manifest(MOST_FILES, 1000, known=4 * 1000 * MOST_FILES))
    assert not due(manifest(MOST_FILES, 1000, known=4 * 1000 * MOST_FILES + 4))


def test_files_do_not_pile_up_until_then() -> None:
    assert crowded(manifest(2 * MOST_FILES, 10, known=10**9))
    assert not crowded(manifest(2 * MOST_FILES, LARGE, known=10**9))
