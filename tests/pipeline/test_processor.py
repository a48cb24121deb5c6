"""episodes.py under Spark's own rules for states, without Spark's JVM."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("google.protobuf.descriptor", reason="the extra `spark` is not installed")

from pyspark.sql import Row
from pyspark.sql.streaming import TwsTester

from paired_servicebus.pipeline.ingest.episode_processor import EpisodeProcessor
from paired_servicebus.pipeline.ingest.partial_aggregates import STORY_COLUMNS
from tests.pipeline.rows import outage


def as_spark(rows: list[dict[str, object]]) -> list[Row]:
    return [Row(**{name: row.get(name) for name in STORY_COLUMNS}) for row in rows]


def test_an_outage_over_two_batches_is_one_episode() -> None:
    tester = TwsTester(EpisodeProcessor())
    rows = outage()
    first = tester.test(("orders",), as_spark(rows[:5]))
    assert [row.outcome for row in first] == ["open"]
    second = tester.test(("orders",), as_spark(rows[5:]))
    assert [(row.id, row.outcome) for row in second] == [(first[0].id, "failed back")]
    assert second[0].version > first[0].version


def test_entities_have_nothing_to_do_with_each_other() -> None:
    tester = TwsTester(EpisodeProcessor())
    tester.test(("orders",), as_spark(outage()[:5]))
    assert tester.test(("payments",), as_spark(outage()[3:4])) == []
