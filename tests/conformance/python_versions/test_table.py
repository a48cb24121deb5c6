"""The table names each failure once, and what was never run."""

from __future__ import annotations

from tests.conformance.checking import Verdict
from tests.conformance.python_versions.__main__ import table


def test_a_row_for_each_check_and_a_column_for_each_release() -> None:
    found = {"7.1": [Verdict("send", True, None)], "7.2": [Verdict("send", False, "no"), Verdict("peek", True, None)]}
    assert table(found).splitlines() == [
        "          7.1      7.2",
        "send   passed   FAILED",
        "peek        -   passed",
        "7.2, send: no",
    ]
