"""Output of figures: one JSON object for programs, rows for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

import msgspec

from paired_servicebus.bench.rounds import Throughput
from paired_servicebus.bench.send_bench import SendFigures
from paired_servicebus.bench.syphon_bench import CPU_TARGET_US, LARGE, SyphonFigures

Targets = Mapping[str, tuple[float, bool]]


class Figures(Protocol):
    """The figures of a bench: a dataclass with targets."""

    @property
    def targets(self) -> dict[str, tuple[float, bool]]:
        """Target of each figure that has one, and whether the figure reaches it."""

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""


def as_json(bench: str, figures: Figures) -> str:
    """Return one line; `targets` holds the target of each figure that has one, and whether it is reached."""
    dataclass: Any = figures
    line: dict[str, Any] = {
        "bench": bench,
        **asdict(dataclass),
        "targets": {
            name: {"target": target, "reached": reached} for name, (target, reached) in figures.targets.items()
        },
        "reached": figures.reached,
    }
    return msgspec.json.encode(line).decode() + "\n"


def syphon_table(figures: SyphonFigures) -> str:
    """Return the table of `paired bench syphon`."""
    paces = [
        ("the syphon, with receipts", figures.ours),
        (f"for {figures.destinations:,} destinations", figures.mixed),
        ("the naive loop on the SDK", figures.naive),
        ("the best loop on the SDK", figures.best_sdk),
        ("a plain copy on our AMQP", figures.raw),
        ("the peer", figures.peer),
    ]
    title = (
        f"moving a backlog, bodies of {figures.size:,} bytes, {figures.latency_ms:g} ms added, {figures.rounds} rounds"
    )
    rows = [pace_row(what, pace) for what, pace in paces if pace is not None]
    ratios = [
        ("ours / naive", "ratio_vs_naive", figures.ratio_vs_naive),
        ("ours / best on the SDK", "ratio_vs_best_sdk", figures.ratio_vs_best_sdk),
        ("ours / plain copy", "ratio_vs_raw", figures.ratio_vs_raw),
        ("ours / peer", "ratio_vs_peer", figures.ratio_vs_peer),
        (f"{figures.destinations:,} destinations / one", "ratio_mixed", figures.ratio_mixed),
    ]
    rows += ratio_rows(ratios, figures.targets)
    if figures.size < LARGE:
        cpu = "reached" if figures.ours.cpu_us <= CPU_TARGET_US else "missed"
        rows.append(f"{'our CPU a message':28} {figures.ours.cpu_us:>9.1f} µs  at most {CPU_TARGET_US:g} µs: {cpu}")
    return join_table(title, rows, band_row(figures.aa_low, figures.aa_high, "copy / copy"))


def send_table(figures: SendFigures) -> str:
    """Return the table of `paired bench send`."""
    title = f"sending while healthy, bodies of {figures.size:,} bytes, {figures.latency_ms:g} ms added"
    rows = [
        pace_row("a paired sender", figures.paired),
        pace_row("a plain sender", figures.plain),
        pace_row(f"{figures.callers} callers, one paired sender", figures.paired_callers),
        pace_row(f"{figures.callers} plain senders", figures.plain_callers),
    ]
    ratios = [
        ("paired / plain", "ratio_vs_sdk", figures.ratio_vs_sdk),
        (f"{figures.callers} callers / plain senders", "ratio_callers", figures.ratio_callers),
    ]
    rows += ratio_rows(ratios, figures.targets)
    return join_table(title, rows, band_row(figures.aa_low, figures.aa_high, "plain / plain"))


def pace_row(what: str, pace: Throughput) -> str:
    """Return the row of a rate."""
    return (
        f"{what:28} {pace.per_second:>9,.0f}/s  from {pace.low:,.0f} to {pace.high:,.0f}, "
        f"client {pace.cpu_us:,.1f} µs a message"
    )


def ratio_rows(ratios: Iterable[tuple[str, str, float | None]], targets: Targets) -> list[str]:
    """Return the rows of ratios: label, name of the target, and value; None: no row."""
    rows = []
    for what, name, found in ratios:
        if found is not None:
            row = f"{what:28} {found:>9.2f}"
            if name in targets:
                target, reached = targets[name]
                row += f"    at least {target:g}: {'reached' if reached else 'missed'}"
            rows.append(row)
    return rows


def band_row(low: float, high: float, what: str) -> str:
    """Return the row of the A/A band."""
    return f"{what:28} {low:>9.2f} to {high:.2f}: the ratio of equals in this run"


def join_table(title: str, rows: Iterable[str], last: str) -> str:
    """Return the text of a table. last: its last row; empty: none."""
    return "\n".join([title, *rows, *([last] if last else [])]) + "\n"
