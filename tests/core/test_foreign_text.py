"""What others wrote moves no cursor, begins no line and turns no text, wherever it is shown."""

from __future__ import annotations

import json
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.text.untrusted_text import escape_json, harmless, indent_lines, one_line

HOSTILE = "\x00\x07\x1b\x7f\x85\x9b\u00ad\u061c\u200b\u200d\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\U000e0041"
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(HOSTILE + "\r\n\t ab")), max_size=80)


def steers(text: str) -> set[str]:
    """Characters that a terminal, or a reader, is led by."""
    return {one for one in text if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}


@given(TEXTS)
def test_no_character_that_steers_is_left(text: str) -> None:
    left = steers(harmless(text)) | steers(one_line(text))
    assert left <= {one for one in text if ord(one) > 0x600 and unicodedata.category(one) == "Cf"}, "marks of scripts"
    assert not left & set(HOSTILE)
    assert "\n" not in one_line(text)


@given(TEXTS, st.integers(min_value=1, max_value=30))
def test_a_line_is_as_long_as_it_may_be(text: str, most: int) -> None:
    assert len(one_line(text, most=most)) <= most


@given(TEXTS)
def test_json_keeps_its_values(text: str) -> None:
    encoded = msgspec.json.encode({"id": text.encode("utf-8", "replace").decode(), "n": [1, "a"]}).decode()
    shown = escape_json(encoded)
    assert json.loads(shown) == json.loads(encoded)
    assert not steers(shown) & set(HOSTILE)


@pytest.mark.parametrize("mark", ["\n", "\r", "\x0b", "\x85", "\u2028", "\r\n"])
def test_no_line_of_a_text_poses_as_the_beginning_of_another(mark: str) -> None:
    forged = indent_lines(f"Traceback{mark}2026-11-22T00:00:00Z INFO console: all is well")
    assert all(line.startswith(("Traceback", "  ")) for line in forged.splitlines())
    assert steers(forged) <= {"\n"}
