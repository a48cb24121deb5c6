"""What a person is told of Spark's failures, and that Spark is asked for where it is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.errors import SparkMissingError
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import Java, first_line, open_session
from tests.approval import Approve

FULL = """[STREAM_FAILED] Query [id = d378] ended: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "streaming_queries.py", line 1, in take
py4j.protocol.Py4JJavaError: An error occurred while calling o213.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Something.run(Something.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


def test_the_innermost_cause_is_what_is_said(approve: Approve) -> None:
    approve.part(first_line(RuntimeError(FULL)), "errors of the pipeline")


def test_without_a_cause_the_first_line_is(approve: Approve) -> None:
    approve.part(first_line(RuntimeError("\n[CONFLICT] it is so\n  and more")), "errors of the pipeline")
    assert first_line(RuntimeError()) == "RuntimeError"


def test_of_a_query_that_failed_the_reason_is_said(approve: Approve) -> None:
    said = "[STREAM_FAILED] Query [id = d378, runId = e51f] terminated with exception: No worker. SQLSTATE: XXKST\n== Q"
    approve.part(first_line(RuntimeError(said)), "errors of the pipeline")


def test_without_spark_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda _: None)
    java = Java(home=tmp_path, major=17, source="PATH")
    with (
        pytest.raises(SparkMissingError, match=r"pip install 'servicebus-paired-console\[spark\]'"),
        open_session(app="test", work=tmp_path, java=java),
    ):
        pass
