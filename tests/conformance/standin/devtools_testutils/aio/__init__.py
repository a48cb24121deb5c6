"""The asynchronous half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def recorded_by_proxy_async(test: Callable[..., Any]) -> Callable[..., Any]:
    return test
