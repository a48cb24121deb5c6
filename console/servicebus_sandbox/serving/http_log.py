"""The logger of aiohttp's servers. Apart from `refusal_log`, because AMQP works without aiohttp."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

from servicebus_sandbox.serving.refusal_log import RefusalLog


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """An aiohttp server's logger that counts malformed and broken requests as refusals; aiohttp logs tracebacks."""

    def __init__(self, logger: logging.Logger, who: str) -> None:
        super().__init__(logger)
        self._refusals = RefusalLog(who, logger)

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError | ConnectionError):
            self._refusals.about(type(error).__name__, "refused a request")
        else:
            super().log(level, msg, *args, **options)
