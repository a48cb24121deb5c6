"""The operator's own configuration of Spark: SPARK_CONF_DIR, beside ours.

Spark reads one configuration folder. Ours is made anew at each start, with links to the operator's other files
(core-site.xml, hive-site.xml, metrics.properties, spark-env.sh, a log4j2 file instead of ours) and with the settings
of the operator's spark-defaults.conf. Those give way to --conf, and to settings that the tables' contents depend on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ConfigurationError, SparkFailedError
from paired_servicebus.core.text.masking import masked

VARIABLE: Final = "SPARK_CONF_DIR"
DEFAULTS: Final = "spark-defaults.conf"
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
