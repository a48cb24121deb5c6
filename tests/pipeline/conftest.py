"""One Spark for all tests of this folder that need one and do not kill it: a start takes ten seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    from paired_servicebus.pipeline.spark.spark_session import open_session

    work = tmp_path_factory.mktemp("work")
    before = dict(os.environ)
    with ExitStack() as ending:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr")  # an operator's in Turkey
            session = ending.enter_context(open_session(app="test", work=work))
        for name in os.environ.keys() - before.keys() - {"TZ"}:  # what only its start needs; other tests run here
            del os.environ[name]
        os.environ.update(before)
        yield session
