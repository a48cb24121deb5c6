"""The tables' one writer: what is committed counts, what a killed one left does not, and there is never a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.errors import PipelineError, PipelineRunningError
from paired_servicebus.pipeline.table_store import lake as lakes
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.lake import STORY, Lake
from paired_servicebus.pipeline.table_store.manifest import File, Manifest


def minutes(*names: str) -> dict[str, object]:
    return {"files": {"minutes": tuple(File(name, 1, 1, 1) for name in names)}}


def test_what_is_committed_is_there_for_the_next(tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        lake.place("minutes", "a.parquet").write_bytes(b"a")
        lake.commit(lambda _: minutes("a.parquet"))
    with Lake(tmp_path) as lake:
        assert (lake.manifest.batch, [file.name for file in lake.manifest.of("minutes")]) == (1, ["a.parquet"])
        assert lake.place("minutes", "a.parquet").exists()


def test_what_was_never_committed_is_removed(tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        half = lake.place("events", "b0000000001")
        half.mkdir()
        (half / "part-0.parquet").write_bytes(b"half")
        waiting = lake.folder / STORY / ".b0000000001.parquet"
        waiting.write_bytes(b"half")
    with Lake(tmp_path):
        assert not half.exists()
        assert not waiting.exists()


def test_a_story_is_seen_when_its_batch_counts_and_not_before(tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        waiting = lake.folder / STORY / ".b0000000001.parquet"
        waiting.write_bytes(b"told")
        lake.commit(lambda _: {})
        assert (lake.folder / STORY / "b0000000001.parquet").read_bytes() == b"told"


def test_a_story_of_a_batch_that_counts_is_published_after_a_crash(tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        lake.commit(lambda _: {})
        (lake.folder / STORY / ".b0000000001.parquet").write_bytes(b"told")
    with Lake(tmp_path) as lake:
        assert (lake.folder / STORY / "b0000000001.parquet").read_bytes() == b"told"


def test_replaced_files_stay_for_those_who_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lake(tmp_path) as lake:
        old, new = lake.place("minutes", "a.parquet"), lake.place("minutes", "b.parquet")
        old.write_bytes(b"a")
        new.write_bytes(b"b")
        lake.commit(lambda _: minutes("a.parquet"))
        lake.commit(lambda _: minutes("b.parquet"))
        assert old.exists()
        monkeypatch.setattr(lakes, "GRACE", 0.0)
        lake.commit(lambda _: {})
        assert not old.exists()
        assert new.exists()


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        with pytest.raises(FileNotFoundError):
            lake.commit(lambda _: minutes("never-written.parquet"))
        assert (lake.manifest.batch, manifests.read(tmp_path).batch) == (0, 0)


def test_a_second_pipeline_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with (
        Lake(tmp_path),
        pytest.raises(PipelineRunningError, match=r"another pipeline \(pid \d+\) writes the tables in"),
    ):
        Lake(tmp_path).__enter__()


def test_tables_of_another_version_begin_a_new_life(tmp_path: Path) -> None:
    with Lake(tmp_path) as lake:
        lake.place("minutes", "a.parquet").write_bytes(b"a")
        lake.commit(lambda _: minutes("a.parquet"))
        lake.checkpoints.mkdir()
        old = lake.manifest.life
    (tmp_path / manifests.NAME).write_text('{"version": 0}')
    with Lake(tmp_path) as lake:
        assert (lake.manifest.batch, lake.manifest.life != old) == (0, True)
        assert not lake.place("minutes", "a.parquet").exists()
        assert not (tmp_path / "checkpoints" / old).exists()


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be used: Not a directory"):
        Lake(tmp_path / "file" / "tables").__enter__()


def test_gone_files_are_looked_for_in_the_newest_manifest(tmp_path: Path) -> None:
    """A reader that opened the tables long ago goes on with those of now."""
    from paired_servicebus.core.model.pairing_events import Warned
    from paired_servicebus.pipeline.table_store.table_reader import Tables
    from tests.pipeline.journals import as_rows, put

    rows = as_rows([Warned(at=1, about="a", text="b")])
    put(tmp_path / "events" / "old.parquet", "events", rows)
    manifests.write(tmp_path, Manifest(batch=1, files={"events": (File("old.parquet", 1, 1, 1),)}))
    with Tables.open(tmp_path) as tables:
        put(tmp_path / "events" / "new.parquet", "events", rows)
        manifests.write(tmp_path, Manifest(batch=2, files={"events": (File("new.parquet", 1, 1, 2),)}))
        (tmp_path / "events" / "old.parquet").unlink()
        assert tables.row("select count(*) as n from events") == {"n": 1}
        assert tables.batch == 2


def test_who_comes_after_the_end_commits_nothing(tmp_path: Path) -> None:
    with Lake(tmp_path) as ended:
        pass
    with Lake(tmp_path), pytest.raises(PipelineError, match="another writer"):
        ended.commit(lambda _: {})
