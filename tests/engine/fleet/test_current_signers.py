"""The file of operators while an engine runs: each change counts before the next verification, and is reported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paired_servicebus.core.fleet.fleet_documents import Order, OrderText, Signer, Unverified, encode_order_text
from paired_servicebus.engine.fleet import order_signatures
from paired_servicebus.engine.fleet.order_signatures import CurrentSigners
from tests.engine.fleet.pens import Pen

ANN, BOB = Pen(1), Pen(2)
TEXT = OrderText(
    primary="p", secondary="s", verb="force", scope="entity", targets=("orders",), engines=("web-1",),
    typed="orders", reach=1, why="", issued_at=5.0, until=3605.0, seen="",
)  # fmt: skip


class Site:
    """A file of operators, and what its reader reported."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "operators"
        self.warned: list[tuple[str, str]] = []
        self.hashes: list[str] = []
        self.write(f"ann {ANN.line}\nbob {BOB.line}\n")
        self.signers = CurrentSigners(self.file, warn=lambda about, text: self.warned.append((about, text)))
        self.signers.changed = self.hashes.append

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)

    def by(self, pen: Pen) -> str:
        """Whose order it is, or why nobody's."""
        signed = encode_order_text(TEXT)
        found = self.signers.verify(Order(signed=signed.decode(), signature=pen.sign(signed)))
        return found.by if isinstance(found, Signer) else found.why


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(order_signatures, "SETTLE_SECONDS", 0.001)
    made = Site(tmp_path)
    await made.signers.load()
    assert made.by(BOB) == "bob"
    return made


async def test_a_removed_operator_loses_the_right_without_a_restart(site: Site) -> None:
    site.write(f"ann {ANN.line}\n")
    await site.signers.refresh()
    assert "is not in the file of operators" in site.by(BOB)
    assert site.by(ANN) == "ann"
    assert site.warned == [("fleet", "the file of operators changed; removed bob; every order is judged again")]
    assert site.hashes == [site.signers.hash]


async def test_a_change_of_equal_size_and_time_is_seen(site: Site) -> None:
    before = site.file.stat()
    site.write(f"ann {ANN.line}\neve {BOB.line}\n")
    os.utime(site.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    await site.signers.refresh()
    assert site.by(BOB) == "eve"


async def test_an_unchanged_file_reports_nothing(site: Site) -> None:
    await site.signers.refresh()
    assert (site.warned, site.hashes) == ([], [])


def missing(site: Site) -> None:
    site.file.unlink()


def empty(site: Site) -> None:
    site.write("")


def unusable(site: Site) -> None:
    site.write("ann ssh-rsa AAAA\n")


def foreign(site: Site) -> None:
    site.file.chmod(0o666)


def folder(site: Site) -> None:
    site.file.unlink()
    site.file.mkdir()


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (missing, "there is no file of operators"),
        (empty, "has no usable ed25519 key"),
        (unusable, "ssh-rsa is not supported"),
        (foreign, "is writable by every user"),
        (folder, "Is a directory"),
    ],
)
async def test_while_it_is_unusable_nobody_has_the_right_and_an_alarm_stands(
    site: Site, harm: Callable[[Site], None], sentence: str
) -> None:
    """The last good file could hold a key that was revoked."""
    harm(site)
    await site.signers.refresh()
    assert site.by(ANN).startswith("look only: ")
    assert sentence in site.by(ANN)
    assert site.signers.trouble == site.by(ANN)
    assert (site.hashes, site.signers.signers) == ([""], None)


async def test_a_verdict_by_an_unusable_file_is_unknown(site: Site) -> None:
    site.file.unlink()
    await site.signers.refresh()
    found = site.signers.verify(Order(signed=encode_order_text(TEXT).decode(), signature=""))
    assert isinstance(found, Unverified)
    assert found.is_unknown


async def test_its_return_ends_the_alarm(site: Site) -> None:
    first = site.signers.hash
    site.file.rename(site.file.with_suffix(".old"))
    await site.signers.refresh()
    site.file.with_suffix(".old").rename(site.file)
    await site.signers.refresh()
    assert site.signers.trouble == ""
    assert site.by(BOB) == "bob"
    assert [(about, text[:10]) for about, text in site.warned] == [("fleet", "the file o")]
    assert site.hashes == ["", first]


async def test_lines_that_are_skipped_are_reported_once(site: Site) -> None:
    for comment in ("# one", "# two"):
        site.write(f"ann {ANN.line}\nold ssh-rsa AAAA\n{comment}\n")
        await site.signers.refresh()
    assert sum("line 2" in text for _, text in site.warned) == 1


async def test_a_file_that_is_written_in_parts_counts_when_it_is_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = f"bob {BOB.line}\nann {ANN.line}\n"
    site.write(whole[:20])

    async def go_on(_seconds: float) -> None:
        site.write(whole)

    monkeypatch.setattr(asyncio, "sleep", go_on)
    await site.signers.refresh()
    assert site.by(BOB) == "bob"
    assert len(site.hashes) == 1


async def test_a_file_that_changes_all_the_time_is_unusable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go_on(_seconds: float) -> None:
        site.write(f"ann {ANN.line}\n# {time.monotonic_ns()}\n")

    site.write("")
    monkeypatch.setattr(asyncio, "sleep", go_on)
    await site.signers.refresh()
    assert "changed between 5 readings" in site.by(ANN)


async def test_a_file_system_that_hangs_holds_nobody_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_signatures, "READ_SECONDS", 0.01)
    readings = []

    def hang(_path: Path) -> str:
        readings.append(1)
        time.sleep(0.2)
        return "late"

    monkeypatch.setattr(order_signatures, "_read_now", hang)
    await site.signers.refresh()
    assert "was not read within 0.01 s" in site.by(ANN)
    await site.signers.refresh()
    assert len(readings) == 1, "one thread waits"


async def test_a_file_that_is_unusable_at_the_start_is_told_and_an_alarm(tmp_path: Path) -> None:
    warned: list[str] = []
    signers = CurrentSigners(tmp_path / "none", warn=lambda _, text: warned.append(text))
    await signers.load()
    assert warned == [f"look only: there is no file of operators {tmp_path / 'none'}"]
    assert signers.trouble == warned[0]
    unconfigured = CurrentSigners(None, warn=lambda _, text: warned.append(text))
    await unconfigured.load()
    await unconfigured.refresh()
    assert (unconfigured.trouble, len(warned)) == ("", 1)
