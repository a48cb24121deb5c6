"""The pictures in `screenshots/` are what the console draws today; when the screen changes they are drawn again."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.demo.scenarios import scenario_named
from tests.pictures.captures import CAPTURE_POINTS, read
from tests.pictures.draw import PICTURES, Picture, capture_file, drawn, main

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
AGAIN = "the screen has changed: look at it, and draw the pictures again by `python -m tests.pictures.draw --all`"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_what_the_console_draws(picture: Picture) -> None:
    same = drawn(picture, SCREENSHOTS) == (SCREENSHOTS / f"{picture.name}.svg").read_text()
    assert same, AGAIN


def test_no_picture_is_there_that_nobody_draws() -> None:
    assert {path.stem for path in SCREENSHOTS.glob("*.svg")} == {picture.name for picture in PICTURES}


def test_the_readme_shows_pictures_that_are_there_and_not_more_than_four() -> None:
    readme = (SCREENSHOTS.parent / "README.md").read_text()
    shown = [part.split(")", 1)[0] for part in readme.split("](screenshots/")[1:]]
    assert 1 <= len(shown) <= 4
    assert all((SCREENSHOTS / name).is_file() for name in shown), shown


@pytest.mark.parametrize("moment", CAPTURE_POINTS, ids=lambda moment: moment.name)
def test_a_moment_was_worth_keeping(moment) -> None:  # type: ignore[no-untyped-def]
    kept = read(capture_file(SCREENSHOTS, moment.name))
    assert moment.worth_it(kept.snapshot)
    assert kept.snapshot.caption in [caption.text for caption in scenario_named(moment.scenario).captions]
    assert [record.seq for record in kept.records] == sorted(record.seq for record in kept.records)


def test_the_outage_has_curves_worth_looking_at() -> None:
    graphs = read(capture_file(SCREENSHOTS, "outage")).graphs
    assert graphs is not None
    assert graphs.length * graphs.step >= 15.0


def test_a_moment_kept_without_curves_is_read(tmp_path: Path) -> None:
    lines = capture_file(SCREENSHOTS, "outage").read_bytes().splitlines(keepends=True)
    (old := tmp_path / "old.jsonl").write_bytes(b"".join(line for line in lines if b'"t":"graphs"' not in line[:20]))
    kept = read(old)
    assert kept.graphs is None
    assert len(kept.records) == len(read(capture_file(SCREENSHOTS, "outage")).records)


def test_what_cannot_be_drawn_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["portrait", "--all"])
    assert main() == 2
    assert "Run it where screenshots/ is" in capsys.readouterr().err
