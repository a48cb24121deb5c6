"""Spark's master by its URL: whether it is on this machine, and whether anything answers there.

Spark tries a master that does not answer for a minute in silence, so its port is tried first. Of the masters of a
standby set (`spark://a:7077,b:7077`) one has to answer.
"""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from paired_servicebus.core.errors import SparkFailedError
from paired_servicebus.core.text.untrusted_text import repeated

PATIENCE: Final = 3.0
"""Seconds that a master has to accept a connection in."""
LOOPBACK: Final = "127.0.0.1"
_STANDALONE: Final = "spark://"
_CONNECT: Final = "sc://"
_PLACE: Final = re.compile(r"\[?(?P<host>[^\[\]@/?#]+?)\]?:(?P<port>\d{1,5})")


def is_local(master: str) -> bool:
    """Whether everything of it is on this machine's loopback."""
    if master.startswith(_STANDALONE):
        return all(_is_loopback(host) for host, _ in places_of(master))
    return master.startswith("local")


def require_master(master: str) -> None:
    """Raise SparkFailedError unless Spark can be started on this master, as far as its port tells."""
    if master.startswith(_CONNECT):
        raise SparkFailedError(
            f"{repeated(master)} is a Spark Connect server, and this program brings its own driver: name a master, as "
            "in spark://HOST:7077, yarn, k8s://HOST:443 or local[*]"
        )
    if not master.startswith(_STANDALONE):
        return
    places = places_of(master)
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
