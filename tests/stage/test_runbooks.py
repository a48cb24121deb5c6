"""The page of runbooks and their plays cover each other: every step of the page is performed, and no other.

The plays themselves take minutes: `python -m tests.long runbooks`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from paired_servicebus.cli import app
from paired_servicebus.config import load_config
from paired_servicebus.core.operator.alarms import ROWS, Severity
from tests.long import PROOFS
from tests.stage.plays.runbooks import _READS, ACTS, RUNBOOKS
from tests.stage.runbook_page import PAGE, PARTS, Act, Command, Runbook, Setting, merge, read_page, write_toml
from tests.stage.table import PLAYS, chosen_plays

TEXT = PAGE.read_text()
BOOKS = read_page(TEXT).runbooks
SUBJECTS = (
    "upgrade", "backlog_queue_count", "another secondary", "loss of the secondary", "rename", "decommission",
    "another host", "rotate keys", "brownout", "full disk",
)  # fmt: skip


def commands(book: Runbook) -> list[Command]:
    return [step for step in book.steps if isinstance(step, Command)]


def test_the_page_has_a_runbook_for_each_subject_and_each_has_a_play() -> None:
    assert list(BOOKS) == list(RUNBOOKS)
    for subject in SUBJECTS:
        assert sum(subject in title.lower() for title in BOOKS) == 1, subject
    assert chosen_plays(["runbook"]) == [f"runbook-{one.name}" for one in RUNBOOKS.values()]
    assert PROOFS["runbooks"] == "-m tests.stage runbook"
    assert all(PLAYS[name].promises for name in chosen_plays(["runbook"]))


@pytest.mark.parametrize("title", BOOKS)
def test_a_runbook_says_when_what_is_seen_what_to_do_how_it_is_done_and_how_to_go_back(title: str) -> None:
    book = BOOKS[title]
    assert tuple(book.parts) == PARTS
    assert book.parts["Do"]
    assert any(isinstance(step, Command) and step.shown for step in book.parts["Done when"]), "it is known by an output"
    assert RUNBOOKS[title].events.keys() <= book.parts.keys()


def test_each_act_of_the_page_is_done_and_no_other() -> None:
    named = {step.sentence for book in BOOKS.values() for step in book.steps if isinstance(step, Act)}
    assert named == set(ACTS)


@pytest.mark.parametrize("title", BOOKS)
def test_each_command_of_the_page_is_one_of_the_program(title: str) -> None:
    known = [command.line for command in commands(BOOKS[title]) if command.line.startswith("paired ")]
    assert known
    for line in known:
        if line != "paired --version":
            found, bound, _ = app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)
            assert callable(found), line
            assert bound is not None


def test_a_command_that_changes_something_is_run_once_and_one_that_reads_until_it_shows_the_page() -> None:
    lines = {command.line for book in BOOKS.values() for command in commands(book)}
    once = {line.split()[1] for line in lines if line.startswith("paired ") and not _READS.match(line)}
    assert once == {"up", "down", "failover", "release", "move-stranded"}


def test_each_setting_of_the_page_is_one_of_a_pairing(tmp_path: Path) -> None:
    base = {
        "pairing": {"name": "orders"},
        **{side: {"connection_string": {"file": f"secrets/{side}"}} for side in ("primary", "secondary")},
    }
    (tmp_path / "secrets").mkdir()
    for side in ("primary", "secondary", "other"):
        secret = tmp_path / "secrets" / side
        secret.touch(mode=0o600)
        secret.write_text(f"Endpoint=sb://{side}.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b\n")
    settings = [step for book in BOOKS.values() for step in book.steps if isinstance(step, Setting)]
    assert settings
    file = tmp_path / "orders.toml"
    for setting in settings:
        file.write_text(write_toml(merge(base, setting)))
        assert load_config(file).name == "orders"


def test_each_alarm_of_the_page_is_a_row_of_the_table() -> None:
    marks = {Severity.CRITICAL: "!", Severity.WARNING: "!", Severity.NOTICE: "?"}
    rows = {(marks[row.severity], str(row.severity), row.name) for row in ROWS}
    named = set(re.findall(r"([!?]) (critical|warning|notice) (\w+): ", TEXT))
    assert len(named) > 6
    assert named <= rows


def test_every_block_of_the_page_is_a_step() -> None:
    blocks = len(re.findall(r"^ *```\w+$", TEXT, re.MULTILINE))
    steps = [step for book in BOOKS.values() for step in book.steps]
    lines = re.findall(r"^ *\$ (.+)$", TEXT, re.MULTILINE)
    assert [step.line for step in steps if isinstance(step, Command)] == lines
    assert len(lines) > blocks > len(BOOKS)


# -- What a play would not notice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "output", "missing"),
    [
        (("healthy", "0 parked"), "orders@h: healthy\n  backlog   0 parked", ""),
        (("0 parked", "healthy"), "orders@h: healthy\n  backlog   0 parked", "healthy"),
        (("orders@…: healthy",), "orders@web-1: healthy (contoso", ""),
        (("orders@…: healthy",), "orders@web-1: degraded", "orders@…: healthy"),
        (("a b c",), "a\n      b c", ""),
        (("1 of 2 (x)",), "1 of 2 [x]", "1 of 2 (x)"),
    ],
)
def test_an_output_is_compared_with_the_lines_of_the_page(shown: tuple[str, ...], output: str, missing: str) -> None:
    assert Command("paired status", shown).missing(output) == missing


@pytest.mark.parametrize(
    "text",
    [
        "## One\n```console\n$ paired status\n```\n",
        "## One\n1. **Do this.**\n",
        "## One\n**Do.**\n```python\npass\n```\n",
    ],
)
def test_a_step_that_no_play_would_perform_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"One|block"):
        read_page(text)


def test_steps_are_read_in_the_order_of_the_page() -> None:
    text = (
        "```sh\nA=1\n```\n## One\n**Do.** Words.\n\n1. **Stop it.** More.\n2. Then:\n\n"
        "   ```console\n   $ a --b\n   out\n\n   $ c\n   ```\n\n"
        "**Done when** it is.\n\n```toml\n[pairing]\ncount = 3\n```\n"
    )
    page = read_page(text)
    assert page.preamble == "A=1"
    assert page.runbooks["One"].parts == {
        "Do": [Act("Stop it."), Command("a --b", ("out",)), Command("c")],
        "Done when": [Setting({"pairing": {"count": 3}})],
    }
    assert merge({"pairing": {"name": "x"}}, Setting({"pairing": {"count": 3}})) == {
        "pairing": {"name": "x", "count": 3}
    }
