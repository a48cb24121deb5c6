"""The tables in a store of Azure's own emulator: Azurite from npm, on loopback, by `abfss://`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from paired_servicebus.cli import main
from paired_servicebus.pipeline.publishing.delta_tables import KEYS
from tests.pipeline.made_tables import Row, make_version, utc
from tests.ports import free_port

deltalake = pytest.importorskip("deltalake")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("npm") is None, reason="Azurite comes from npm")]

AZURITE = "azurite@3.35.0"
INSTALL = 170.0
READY = 60.0
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's account and key, the same everywhere and public."""
VERSION = "2021-08-06"
MONDAY = 1_795_478_400.0


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Azurite."""
    folder = tmp_path_factory.mktemp("azurite")
    given = os.environ.get("PAIRED_AZURITE")
    if given is None:
        install = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", AZURITE]
        try:
            ran = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not bring Azurite in time")
        if ran.returncode:
            pytest.skip(f"npm has no Azurite here: {ran.stderr[-200:]}")
    program = given or str(folder / "node_modules" / ".bin" / "azurite-blob")
    port = free_port()
    address = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    options = ["--silent", "--skipApiVersionCheck", "--disableProductStyleUrl"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *address, *options], stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int) -> None:
    end = time.monotonic() + READY
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "Azurite does not listen"
            time.sleep(0.1)


@pytest.fixture
def store(azurite: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The URL of a new container, in an environment that leads to it."""
    container = f"c{abs(hash(tmp_path)):x}"[:40]
    create_container(azurite, container)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", azurite)
    return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/orders"


def create_container(azurite: str, name: str) -> None:
    """Create a container by the storage's REST interface."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = (
        f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    )
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    request = urllib.request.Request(f"{azurite}/{ACCOUNT}/{name}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 201


def minute(day: int, accepted: int) -> Row:
    return {
        "engine": "e1", "entity": "orders", "minute": utc(MONDAY + day * 86_400), "primary_accepted": accepted,
        "ping_seconds": [0.25, 0.5],
    }  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return make_version(
        tmp_path / "tables", minutes=[minute(0, 1), minute(1, 2)], engines=[{"engine": "e1", "boot": "b1"}]
    )


def publish(tables: Path, to: str) -> int:
    return main(["tables", "publish", "--tables", str(tables), "--to", to])


def accepted(to: str) -> list[int]:
    """What deltalake reads from the store."""
    found = deltalake.DeltaTable(f"{to}/minutes")
    with duckdb.connect() as connection:
        scanned = deltalake.QueryBuilder().register("minutes", found).execute("select * from minutes")
        connection.register("scanned", scanned)
        return [row[0] for row in connection.execute("select primary_accepted from scanned order by 1").fetchall()]


def test_tables_in_a_store_are_published_once_and_then_by_date(
    store: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(tables, store) == 0
    assert accepted(store) == [1, 2]
    versions = {name: deltalake.DeltaTable(f"{store}/{name}").version() for name in ("minutes", "engines")}
    assert publish(tables, store) == 0
    assert "nothing had changed" in capsys.readouterr().out
    make_version(tables, minutes=[minute(0, 1), minute(1, 20), minute(2, 3)])
    assert publish(tables, store) == 0
    assert accepted(store) == [1, 3, 20]
    assert deltalake.DeltaTable(f"{store}/engines").version() == versions["engines"]
    assert deltalake.DeltaTable(f"{store}/minutes").version() == versions["minutes"] + 1


def test_other_readers_have_the_same_rows(store: str, tables: Path) -> None:
    polars = pytest.importorskip("polars")
    assert publish(tables, store) == 0
    scanned = polars.scan_delta(f"{store}/minutes", credential_provider=None, storage_options={"use_emulator": "true"})
    found = scanned.sort("primary_accepted").collect()
    assert found["primary_accepted"].to_list() == [1, 2]
    assert str(found.schema["minute"]) == "Datetime(time_unit='us', time_zone='UTC')"
    assert found["ping_seconds"].to_list() == [[0.25, 0.5]] * 2
    assert [str(date) for date in found["date"].to_list()] == ["2026-11-24", "2026-11-25"]


def test_somebody_elses_table_in_a_store_is_refused(
    store: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deltalake.write_deltalake(f"{store}/verdicts", duckdb.sql("select 1 as theirs"))
    assert publish(tables, store) == 2
    assert "is a table of something else" in capsys.readouterr().err
    assert not deltalake.DeltaTable.is_deltatable(f"{store}/events")
    assert deltalake.DeltaTable(f"{store}/verdicts").version() == 0


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"another key").decode(), "AuthorizationFailure"),
        ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:1", "Connection refused"),
    ],
)
def test_a_store_that_refuses_or_does_not_answer_is_one_sentence(
    store: str, tables: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    setting: str, value: str, reason: str,
) -> None:  # fmt: skip
    assert publish(tables, store) == 0
    make_version(tables, minutes=[minute(0, 9)])
    capsys.readouterr()
    with monkeypatch.context() as broken:
        broken.setenv(setting, value)
        assert publish(tables, store) == 2
        said = capsys.readouterr()
    assert f"was not published to {store}: " in said.err
    assert reason in said.err
    assert said.err.count("\n") == 1
    assert value not in said.err + said.out
    assert accepted(store) == [1, 2]


def test_a_container_that_is_not_there_is_one_sentence(
    store: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(tables, store.replace("//c", "//none")) == 2
    said = capsys.readouterr().err
    assert "ContainerNotFound" in said
    assert said.count("\n") == 1


def test_a_publish_that_is_killed_leaves_whole_tables_and_the_next_one_adds_the_rest(store: str, tables: Path) -> None:
    assert publish(tables, store) == 0
    make_version(tables, minutes=[minute(day, day) for day in range(40)])
    command = [sys.executable, "-m", "paired_servicebus", "tables", "publish", "--tables", str(tables), "--to", store]
    for delay in (0.6, 0.9, 1.2):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        process.wait()
        assert accepted(store) in ([1, 2], list(range(40)))
    assert publish(tables, store) == 0
    assert accepted(store) == list(range(40))
