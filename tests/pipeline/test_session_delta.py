"""`paired pipeline --format delta`: the Delta tables have the rows of the tables.

`python -m tests.long delta` runs it, in an environment of its own with pyspark 4.2: Delta's jar is for that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra `publish` is not installed")

from deltalake import DeltaTable

from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.interpreter import python_environment
from paired_servicebus.pipeline.table_store.manifest import DELTA
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.maven import DELTA_SPARK, DELTA_STORAGE, jars

pytestmark = [
    pytest.mark.skipif(os.environ.get("PAIRED_SPARK") != "all", reason="python -m tests.long delta"),
    pytest.mark.timeout(3600),
]
EVENTS = 20_000


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with pyspark 4.2 before everything that this one has."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "pyspark==4.2.0"], check=True)
    own = next((folder / "lib").glob("python*")) / "site-packages"
    others = [one for one in sys.path if one.endswith("site-packages")] or [sysconfig.get_paths()["purelib"]]
    (own / "others.pth").write_text("\n".join([*others, *(one for one in sys.path if one.endswith("console"))]))
    return python


def make(python: Path, journal: Path, tables: Path, jar_list: str) -> None:
    command = [
        python, "-m", "paired_servicebus", "pipeline", "--once", "--journal", journal, "--tables", tables,
        "--format", "delta", "--conf", f"spark.jars={jar_list}",
    ]  # fmt: skip
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_the_delta_tables_have_the_rows_of_the_tables(python: Path, tmp_path: Path) -> None:
    write_journal(tmp_path / "j", EVENTS, lines=EVENTS // 4)
    late = sorted((tmp_path / "j" / CLOSED).iterdir())[-1]
    late = late.rename(tmp_path / late.name)
    jar_list = jars(tmp_path / "jars", DELTA_SPARK, DELTA_STORAGE)
    make(python, tmp_path / "j", tmp_path / "t", jar_list)
    late.rename(tmp_path / "j" / CLOSED / late.name)
    make(python, tmp_path / "j", tmp_path / "t", jar_list)
    versions = {table: DeltaTable(tmp_path / "t" / DELTA / table).version() for table in TABLES}
    make(python, tmp_path / "j", tmp_path / "t", jar_list)
    with Tables.open(tmp_path / "t") as tables:
        for table, columns in TABLES.items():
            delta = DeltaTable(tmp_path / "t" / DELTA / table)
            assert delta.version() == versions[table], f"{table}: nothing had changed"
            found = delta.to_pyarrow_table().num_rows
            assert tables.row(f"select count(*) as n from {table}") == {"n": found}, table
            assert set(columns) <= {field.name for field in delta.schema().fields}, table
