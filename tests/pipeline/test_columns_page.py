"""COLUMNS.md: each column of the tables with its type, meaning and unit.

`--approve` writes the tables, columns and types of the schema; a new column has no meaning until one is written.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paired_servicebus import pipeline
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES

PAGE = Path(pipeline.__file__).parent / "COLUMNS.md"
COLUMNS = {name: columns | ({"date": "DATE"} if name in DATED else {}) for name, columns in TABLES.items()}
HEAD, *SECTIONS = PAGE.read_text("utf-8").split("\n## ")
MEANINGS = {
    (section.partition("\n")[0], found["column"]): (found["meaning"], found["unit"])
    for section in SECTIONS
    for found in re.finditer(r"\| `(?P<column>\w+)` \| \S+ \| (?P<meaning>.*) \| (?P<unit>.*) \|", section)
}


def made() -> str:
    """The page of the schema, with the meanings that it has."""
    rows = {one.partition("\n")[0]: one.split("\n")[2] for one in SECTIONS}
    page = [HEAD.rstrip()]
    for table, columns in COLUMNS.items():
        page += [f"\n## {table}\n", rows.get(table, "A row is ."), "\n| column | type | meaning | unit |"]
        page.append("|---|---|---|---|")
        known = ((name, kind, *MEANINGS.get((table, name), ("", ""))) for name, kind in columns.items())
        page += [f"| `{name}` | {kind} | {meaning} | {unit} |" for name, kind, meaning, unit in known]
    return "\n".join([*page, ""])


def test_the_page_has_the_columns_and_types_of_the_schema(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--approve"):
        PAGE.write_text(made(), "utf-8")
    assert PAGE.read_text("utf-8") == made()


@pytest.mark.parametrize("table", COLUMNS)
def test_each_column_has_a_meaning_and_a_unit_of_its_type(table: str) -> None:
    for name, kind in COLUMNS[table].items():
        meaning, unit = MEANINGS[table, name]
        assert meaning, name
        assert (kind in ("TIMESTAMP", "DATE")) == unit.startswith("UTC"), name
        assert (kind == "BOOLEAN") == (unit == "yes or no"), name
        assert (kind == "VARCHAR") == (unit == ""), name
        assert not name.endswith("_bytes") or unit == "bytes"
        assert not name.endswith("_seq") or unit.startswith("number")
