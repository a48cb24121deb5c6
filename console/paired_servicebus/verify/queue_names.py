"""The names of the experiments' queues: `paired-verify-RUN-NUMBER`, and the record of their runs."""

from __future__ import annotations

import re
from typing import Final

from paired_servicebus.temporary_entities.run_record import RecordKind

PREFIX: Final = "paired-verify-"
_NAME: Final = re.compile(rf"{PREFIX}([0-9a-f]{{12}})-[0-9]+")


def run_of(path: str) -> str:
    """Return the run that made a queue; "" for a queue of any other origin."""
    found = _NAME.fullmatch(path)
    return found[1] if found is not None else ""


def without_queues(text: str, word: str) -> str:
    """Replace the names of our queues in a text by one word."""
    return _NAME.sub(word, text)


RECORDS: Final = RecordKind(folder="verify", prefix=PREFIX, run_of=run_of)
