"""Approved texts: a difference fails with a diff, and no approved text is left without its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.approval import FOLDER, Approve, read_parts, title_of

TITLES = re.compile(r"def test_(\w+)\(|\"([^\"\n]+)\"")


def test_a_text_that_differs_fails_with_a_diff_and_is_kept(tmp_path: Path) -> None:
    scene, first = next((file.stem, read_parts(file.read_text("utf-8"))) for file in FOLDER.glob("rules.txt"))
    title, approved = next(iter(first.items()))
    approve = Approve(title, False, tmp_path)
    approve.part(approved, scene)
    with pytest.raises(pytest.fail.Exception) as failed:
        Approve(title, False, tmp_path).part(approved + "one more", scene)
    assert "+one more" in str(failed.value)
    assert (tmp_path / f"{scene}.received.txt").read_text("utf-8") == approved + "one more\n"


def test_figures_are_compared_whatever_is_approved(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="3 min"):
        Approve("any", True, tmp_path).part("in 2 min", "never written", has=("3 min",))
    assert not (FOLDER / "never written.txt").exists()


def test_folders_and_ports_are_not_in_a_text(tmp_path: Path) -> None:
    text = Approve("any", False, tmp_path)._stable(f"{tmp_path}/a at 127.0.0.1:54321, NOW  \n", {"NOW": "then"})
    assert text == "TMP/a at 127.0.0.1:PORT, then\n"


def test_every_approved_part_has_its_test() -> None:
    found = [pair for file in FOLDER.parent.rglob("test_*.py") for pair in TITLES.findall(file.read_text("utf-8"))]
    known = {title_of(name) if name else literal for name, literal in found}
    parts = [title for file in FOLDER.glob("*.txt") for title in read_parts(file.read_text("utf-8"))]
    assert [title for title in parts if re.sub(r" \(.*\)$", "", title) not in known and title not in known] == []
