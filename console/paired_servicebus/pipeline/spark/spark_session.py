"""A Spark session for this project: on loopback or a cluster, in UTC, silent, with the operator's own configuration.

Only for separate processes: Spark takes over SIGINT, and the JVM and its Python workers write to the terminal under any
configuration.

The parent has a pairing's keys or AZURE_CLIENT_SECRET in its environment, which the JVM does not need: it gets only the
variables of Spark, Hadoop and its object stores. AZURE_* is not among them, since hadoop-azure reads only its settings.
The exception is a drain on this machine: its tasks, children of the JVM, need the keys of pairing.toml. A setting may
hold a secret, too: it is in a file for its user only, since all users can read a process's arguments.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.errors import SparkFailedError, SparkMissingError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.spark.java import Java
from paired_servicebus.pipeline.spark.masters import LOOPBACK, driver_settings, is_local, require_master
from paired_servicebus.pipeline.spark.operator_conf import link_others, operator_defaults, operator_folder

# The JVM's own words about its failed start, which Spark's Python side leaves in the log.
#
# pyspark only reports that the Java process exited. The reason is on the standard error that both processes share.

MAX_LOG_BYTES: Final = 64 * 1024
"""Bytes of the log that are looked into."""
_MAX_REASON: Final = 400
_THROWN: Final = re.compile(r'Exception in thread "[^"]*" (?:[\w$]+\.)*[\w$]+: (?P<reason>\S.*)')
_ERROR: Final = re.compile(r"(?:Error: |error: |Error occurred during |.*error while loading shared libraries: ).*\S.*")
_NOISE: Final = re.compile(
    r"\s*at |\s*\.\.\. \d+ more|WARNING: |Picked up |Using Spark's |Setting default log level|\s*$"
    r"|Error: Could not create the Java Virtual Machine|Error: A fatal exception|\S*spark-class: line \d+: CMD:"
)
"""Lines around the reason; the last three follow from it."""


class StartLog:
    """The standard error of this process from now on, if it is a file."""

    def __init__(self) -> None:
        self._begin = self._size()

    def reason(self) -> str:
        """Return the JVM's own reason for its end as one line; empty if it left none."""
        if self._begin < 0:
            return ""
        try:
            with open("/dev/fd/2", "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
                size = os.fstat(file.fileno()).st_size
                text = os.pread(file.fileno(), MAX_LOG_BYTES, max(self._begin, size - MAX_LOG_BYTES)).decode(
                    errors="replace"
                )
        except OSError:  # written to and not readable: a pipe of another user's
            return ""
        return reason_in(text)

    @staticmethod
    def _size() -> int:
        status = os.fstat(2)
        return status.st_size if stat.S_ISREG(status.st_mode) else -1


def reason_in(text: str) -> str:
    """Return the line of a JVM's output that has the reason for its end; empty without one."""
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    thrown = [found["reason"] for line in lines if (found := _THROWN.match(line))]
    errors = [_with_next(lines, index) for index, line in enumerate(lines) if _ERROR.match(line)]
    said = thrown[-1] if thrown else errors[0] if errors else lines[-1] if lines else ""
    return one_line(masked(said), most=_MAX_REASON)


def _with_next(lines: list[str], index: int) -> str:
    """Return a line; with the next one, if that has the reason: the JVM writes two for its own errors."""
    line = lines[index]
    return " ".join(lines[index : index + 2]) if line.startswith("Error occurred during") else line


STOP: Final = 10.0
"""Seconds that a session has to stop in."""
HEAP: Final = "1g"
LOCAL: Final = "local[2,4]"
"""Two tasks at a time, each tried four times: plain local[2] would not try again."""


@contextmanager
def open_session(
    *,
    app: str,
    work: Path,
    java: Java,
    master: str = LOCAL,
    settings: Mapping[str, object] | None = None,
    private: Mapping[str, str] | None = None,
    whole_environment: bool = False,
) -> Iterator[Any]:
    """Yield a session and stop it at the end. Raises SparkMissingError or SparkFailedError (one sentence, chained).

    Args:
        app: its name in Spark's logs and pages.
        work: our folder for logs and scratch.
        master: a Spark master URL.
        settings: Spark's own, on top of the usual ones.
        private: the operator's, on top of all: in no argument of a process.
        whole_environment: give its tasks this process's whole environment, for access to namespaces.
    """
    if find_spec("pyspark") is None:
        raise SparkMissingError(
            "Spark is not installed: pip install 'servicebus-paired-console[spark]' installs it, with a Java"
        )
    require_master(master)
    given = dict(private or {})
    own = {**_settings(work), **driver_settings(master), **(settings or {})}
    given = {**_set_up(work, java, own), **given}
    if "spark.driver.host" in given:
        own.pop("spark.driver.bindAddress", None)  # by default the same; Spark's own default then
    elif is_local(master):  # otherwise its other ports listen on the network
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"paired {app}").master(master)
    write_defaults(work / "conf", given)
    for name in own.keys() - given.keys():
        builder = builder.config(name, str(own[name]))
    log = StartLog()
    try:
        with nullcontext() if whole_environment else withheld():
            spark = builder.getOrCreate()
    except Exception as error:  # whatever py4j, the JVM or the master said
        why = (log.reason() if _EXITED in str(error) else "") or first_line(error)
        raise SparkFailedError(f"Spark did not start on {masked(master)}: {why}") from error
    try:
        yield spark
    finally:
        _stop(spark)


def for_small_work(spark: Any) -> Any:
    """Return a session beside this one, for queries over a few thousand rows.

    Spark compiles each query to Java first: for so few rows that takes ten times as long as running it.
    """
    session = spark.newSession()
    for name, value in _SMALL.items():
        session.conf.set(name, value)
    return session


def spark_path(path: Path) -> str:
    """Return a path as Spark's readers take it: they would look for patterns in it."""
    return "".join(f"\\{one}" if one in "[]{}*?\\" else one for one in str(path))


def first_line(error: BaseException) -> str:
    """Return the reason for Spark's failure without its stack: the innermost cause, otherwise the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [found.group(1) for line in lines if (found := _CAUSE.match(line))]
    said = causes[-1] if causes else _QUERY.sub("", lines[0]) if lines else ""
    return f"{type(error).__name__}: {masked(said)[:400]}" if said else type(error).__name__


def _set_up(work: Path, java: Java, own: Mapping[str, object]) -> dict[str, str]:
    """Make the configuration and the environment of the JVM; return the settings of the operator's own files.

    Raises SparkFailedError: the operator's configuration cannot be read.
    """
    conf = work / "conf"
    theirs = operator_folder(os.environ, ours=conf)
    shutil.rmtree(conf, ignore_errors=True)  # with the links of an earlier start
    conf.mkdir(mode=0o700, parents=True)
    (conf / "fairscheduler.xml").write_text(_FAIR)
    if theirs is None or not link_others(theirs, conf):
        (conf / "log4j2.properties").write_text(_LOG4J.format(file=work / "spark.log"))
    defaults = {} if theirs is None else operator_defaults(theirs)
    for name in (_JAVA_OPTIONS, _EXECUTOR_OPTIONS):
        if name in defaults:
            defaults[name] = f"{own[name]} {defaults[name]}"
    os.environ.update(
        JAVA_HOME=str(java.home),
        SPARK_CONF_DIR=str(conf),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONSAFEPATH="1",  # the JVM starts `python -m pyspark.daemon`
        TZ="UTC",
    )
    os.environ.pop("SPARK_HOME", None)  # another Spark of this machine's
    time.tzset()
    return defaults


def _settings(work: Path) -> dict[str, object]:
    return {
        "spark.driver.memory": HEAP,
        _JAVA_OPTIONS: f'{_SHORT} -Duser.timezone=UTC {_ENGLISH} "-Djava.io.tmpdir={work}"',
        _EXECUTOR_OPTIONS: _ENGLISH,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.local.dir": work / "scratch",
        "spark.sql.warehouse.dir": work / "warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.adaptive.enabled": "false",  # replanning at each stage took a tenth of a million events' time
        "spark.sql.icu.caseMappings.enabled": "false",  # ICU's lower() took a twelfth of a million events' time
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.maxConcurrentOutputFileWriters": 32,  # days of one task: otherwise it sorts its rows first
        "spark.sql.sources.parallelPartitionDiscovery.threshold": 10_000,  # below it the driver lists files itself
        "spark.sql.files.openCostInBytes": 256 * 1024,  # a quiet engine's files are small
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }


_SMALL: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


def _stop(spark: Any) -> None:
    """Stop the session; a session that does not stop in time ends with this process."""
    stopping = threading.Thread(target=spark.stop, name="stopping Spark", daemon=True)
    stopping.start()
    stopping.join(STOP)


_EXITED: Final = "JAVA_GATEWAY_EXITED"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
_CAUSE: Final = re.compile(r"(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]*(?:Error|Exception): \S.*)")

_QUERY: Final = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: | SQLSTATE: \w+$")
"""The text around the reason in every failed query's error."""

_ENGLISH: Final = "-Duser.language=en"
"""In Turkish, say, lower() makes two entities of ÉI and éi."""

_SHORT: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For minutes of work on two cores: Java's second compiler took a third of the processor for a million events.

Without it, 48 MB of compiled code are all that Java keeps. Spark's queries fill them within minutes, and then nothing
is compiled any more."""

_FAIR: Final = """<?xml version="1.0"?>
<allocations><pool name="default">
  <schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare>
</pool></allocations>
"""
"""Jobs take turns: otherwise a short one waits until a long one that began before it has no more tasks to give out."""

_LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}}{{UTC}} %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 4MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


PASSED_ON: Final = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "JAVA_HOME",
        "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "KRB5CCNAME", "KRB5_CONFIG",
        "GOOGLE_APPLICATION_CREDENTIALS",
    }
)  # fmt: skip
FAMILIES: Final = ("LC_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_", "AWS_")
DEFAULTS: Final = "spark-defaults.conf"
_KEY: Final = "sharedaccess"
"""Part of every connection string: such a variable is withheld under any name."""


def spark_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's part of an environment."""
    return {
        name: value
        for name, value in environ.items()
        if (name in PASSED_ON or name.startswith(FAMILIES)) and _KEY not in value.casefold()
    }


@contextmanager
def withheld() -> Iterator[None]:
    """Remove the variables that are not Spark's from this process's environment, inside the block."""
    allowed = spark_variables(os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in allowed}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


def write_defaults(conf: Path, settings: Mapping[str, object]) -> None:
    """Write settings where Spark looks for them in its configuration folder, for this user alone."""
    path = conf / DEFAULTS
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{_property(name)}={_property(str(value))}\n" for name, value in settings.items())


def _property(text: str) -> str:
    """As Java's properties are written: every character that means something there is escaped."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(named.get(one, f"\\{one}" if one in "\\=:#! " else one) for one in text)
