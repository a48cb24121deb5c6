"""The README is true: its links lead somewhere, it is short, and docstrings refer to sections that SPEC.md has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "console").rglob("*.md"))
    if not {".venv", "__pycache__"} & set(path.parts)
)
MOST_WORDS = 2000
MOST_LINES = 150
SPEC = ROOT / "console/paired_servicebus/SPEC.md"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    for link in links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_has_at_most_2000_words() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


def test_how_it_works_is_one_page() -> None:
    assert len((SPEC.parent / "HOW_IT_WORKS.md").read_text().splitlines()) <= MOST_LINES


def test_every_file_that_how_it_works_names_is_there() -> None:
    named = re.findall(r"`((?:console/)?[\w/]+\.(?:py|md|toml))`", (SPEC.parent / "HOW_IT_WORKS.md").read_text())
    assert len(named) > 20
    assert [
        name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "console", SPEC.parent))
    ] == []


def test_every_file_that_a_proof_s_command_names_is_there() -> None:
    commands = [(ROOT / name).read_text() for name in (".ci/run", "tests/long.py")]
    folded = re.compile(r"([\w/]+)\{([\w,]+)\}\.py")
    named = [name for text in commands for name in re.findall(r"tests/[\w/]+\.py", folded.sub(_unfolded, text))]
    named += [one.replace(".", "/") for text in commands for one in re.findall(r"-m (tests(?:\.\w+)+)", text)]
    assert len(named) > 20
    assert [
        one for one in named if not any((ROOT / f"{one}{end}").exists() for end in ("", ".py", "/__main__.py"))
    ] == []


def _unfolded(found: re.Match[str]) -> str:
    return " ".join(f"{found[1]}{name}.py" for name in found[2].split(","))


def test_every_section_of_the_specification_that_a_docstring_names_is_there() -> None:
    sections = set(re.findall(r"^## (\d+)\.", SPEC.read_text(), re.MULTILINE))
    files = [path for folder in ("console", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = {number for path in files for number in re.findall(r"SPEC\.md sections? ([0-9]+)", path.read_text("utf-8"))}
    assert len(named) > 8
    assert named <= sections
