"""The plots of a report: axes, labels, marks, and no shape that is not in the data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from random import Random

import pytest

from paired_servicebus.core.model.pairing_events import SendsCounted
from paired_servicebus.pipeline.report import plots
from paired_servicebus.pipeline.report.report_command import Wording, as_text
from paired_servicebus.pipeline.report.report_queries import report_since
from paired_servicebus.pipeline.report.report_values import Panel, Report
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import START, T, records, whole


@pytest.fixture
def report() -> Report:
    return whole()


def panel(report: Report, name: str) -> Panel:
    return next(one for one in report.curves.panels if one.name == name)


def test_there_is_a_plot_of_sends_and_one_of_the_backlog(report: Report) -> None:
    assert [one.name for one in report.curves.panels] == ["sends", "parked"]
    assert [one.unit for one in report.curves.panels] == ["messages a second", "messages"]


def test_curves_add_up_to_the_data(report: Report) -> None:
    curves = report.curves
    found = {
        one.name: sum(value or 0.0 for value in one.values) * curves.bucket for one in panel(report, "sends").series
    }

    assert found["backlog"] == pytest.approx(260)
    assert found["failed"] == pytest.approx(8)
    parked, counted = panel(report, "parked").series
    assert max(value or 0.0 for value in parked.values) == 20
    assert parked.values[-1] == 2
    assert (counted.name, counted.values[-1]) == ("counted", 2)


def test_a_steady_rate_is_a_level_line() -> None:
    """Counts come about a second apart. Buckets of 16.5 s made a saw-tooth of them, and jitter would of 1 s."""
    random, clock, events = Random(7), T, []
    for _ in range(2400):
        took = 1 + random.uniform(-0.15, 0.15)
        clock += took
        events.append(
            SendsCounted(
                at=clock, entity="orders", route="primary", accepted=round(took * 1000), failed=0, seconds=took
            )
        )
    report = report_since(MemoryTables(records(START, *events)), T)
    values = [value for value in report.curves.panels[0].series[0].values if value is not None][1:-1]
    assert report.curves.bucket == round(report.curves.bucket)
    assert len(values) > 150
    assert all(value == pytest.approx(1000, rel=0.002) for value in values), (min(values), max(values))


@pytest.mark.parametrize("seconds", [1, 59, 240, 241, 3600, 86_400, 30 * 86_400, 4e9])
def test_buckets_are_whole_seconds_at_whole_multiples(seconds: float) -> None:
    found = plots.Buckets.of(T + 0.7, T + 0.7 + seconds, (T, T + seconds))
    assert isinstance(found.length, int)
    assert found.since % found.length == 0
    assert found.since <= T + 0.7
    assert found.since + found.length * found.count >= T + 0.7 + seconds
    assert 1 <= found.count <= plots.MAX_BUCKETS + 1


@pytest.mark.parametrize("width", [plots.WIDE, plots.NARROW])
def test_labels_are_within_the_picture_and_beside_the_curves(report: Report, width: int) -> None:
    """A label was cut at the right edge, and "failed over" was written across the curve."""
    for one in report.curves.panels:
        root = ET.fromstring(plots.draw(report.curves, one, width=width))
        height = float(root.attrib["height"])
        curves = [path for path in root.findall("{*}path") if "stroke-linejoin" in path.attrib]
        assert curves
        top, bottom = 54.0, 54.0 + 150.0
        for text in root.findall("{*}text"):
            long = len(text.text or "") * plots.CHARACTER
            x, y = float(text.attrib["x"]), float(text.attrib["y"])
            left = {"start": x, "middle": x - long / 2, "end": x - long}[text.attrib.get("text-anchor", "start")]
            assert left >= 0, text.text
            assert left + long <= width + 2, text.text
            assert 0 < y < height
            assert y <= top or y >= bottom or left + long <= 64, f"{text.text} is across the curves"


def test_plots_have_units_utc_grid_and_marks(report: Report) -> None:
    text = plots.draw(report.curves, panel(report, "sends"))
    assert ">messages a second<" in text
    assert ">2023-11-14 UTC, 1 s a step<" in text
    assert ">failed over<" in text
    assert ">22:14:51 pause-syphon by anna: &quot;to look&quot;: done<" in text
    assert text.count('stroke="#e3e8ee"') > 6, "a grid in both directions"


def test_depths_are_carried_on_from_reading_to_reading(report: Report) -> None:
    """A queue's depth is recorded where it changed only."""
    _, depth = panel(report, "parked").series
    known = [value for value in depth.values if value is not None]
    assert known == [20.0] * 25 + [2.0] * (len(known) - 25)


@pytest.mark.parametrize(
    ("since", "until", "labels"),
    [
        (T, T + 60, ["22:13:20", "22:13:30", "22:13:40", "22:13:50", "22:14:00", "22:14:10", "22:14:20"]),
        (T, T + 3600, ["22:20", "22:30", "22:40", "22:50", "23:00", "23:10"]),
        (T, T + 6 * 3600, ["23:00", "11-15", "01:00", "02:00", "03:00", "04:00"]),
    ],
)
def test_times_have_ticks_at_round_times(since: float, until: float, labels: list[str]) -> None:
    assert [label for _, label in plots.time_ticks(since, until, 9)] == labels


@pytest.mark.parametrize(
    ("most", "unit", "labels"),
    [
        (31.0, "messages a second", ["0", "10", "20", "30", "40"]),
        (0.7, "messages a second", ["0", "0.2", "0.4", "0.6", "0.8"]),
        (3, "messages", ["0", "1", "2", "3"]),
        (0.0, "messages", ["0", "1"]),
        (12_000_000, "messages", ["0", "5 M", "10 M", "15 M"]),
    ],
)
def test_values_have_ticks_at_round_numbers(most: float, unit: str, labels: list[str]) -> None:
    assert [label for _, label in plots.value_ticks(most, unit)] == labels


def test_a_page_has_its_plots_within_for_wide_and_narrow_screens(report: Report) -> None:
    page = as_text(report, Wording(format="html"))
    drawn = [ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert [one.attrib["width"] for one in drawn] == ["900", "400"] * 2
    assert all(one.findall("{*}path") for one in drawn)
