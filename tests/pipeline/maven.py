"""Jars from Maven Central, by Maven itself, each without what it depends on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HADOOP_AWS = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "software.amazon.awssdk:bundle:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
"""S3 for Spark 4.3, whose Hadoop is 3.5.0, with what that was built with."""
DELTA_SPARK = "io.delta:delta-spark_2.13:4.2.0"
DELTA_STORAGE = "io.delta:delta-storage:4.2.0"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


def jars(folder: Path, *artifacts: str) -> str:
    """Fetch jars into a folder, as Spark's setting `spark.jars` lists them; the test is skipped without Maven."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in artifacts:
        for goal in (("get", "-Dtransitive=false"), ("copy", f"-DoutputDirectory={folder}")):
            command = ["mvn", "-q", "-B", f"{PLUGIN}:{goal[0]}", f"-Dartifact={artifact}", goal[1]]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
            assert done.returncode == 0, done.stdout[-2000:]
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))
