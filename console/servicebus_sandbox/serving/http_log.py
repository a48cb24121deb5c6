"""What the HTTP servers log: aiohttp writes a traceback for each request that is no HTTP, we a line for each reason."""

from __future__ import annotations

import logging
from typing import Any, cast

from aiohttp.http_exceptions import HttpProcessingError


class _OncePerReason(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, logger: logging.Logger, who: str) -> None:
        super().__init__(logger)
        self._who = who
        self._told: set[str] = set()

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        error = options.get("exc_info")
        if not isinstance(error, HttpProcessingError | ConnectionError):
            super().log(level, msg, *args, **options)
        elif type(error).__name__ not in self._told:
            self._told.add(type(error).__name__)
            super().log(logging.WARNING, "%s turned a request away: %s (told once)", self._who, type(error).__name__)


def once_per_reason(logger: logging.Logger, who: str) -> logging.Logger:
    """A logger for an aiohttp server: requests that are no HTTP or break off are told once for each reason.

    `who` begins the line. Everything else is logged as it comes.
    """
    return cast(logging.Logger, _OncePerReason(logger, who))
