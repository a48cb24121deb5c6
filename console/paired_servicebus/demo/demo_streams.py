"""The messages that the demo's application sends."""

from __future__ import annotations

from typing import Final

from paired_servicebus.demo.scenario_model import AUDIT, ORDERS, PAYMENTS, SUBSCRIPTION
from paired_servicebus.workload.workload import MessageStream

SESSIONS: Final = ("amsterdam", "bergen", "cork")
STREAMS: Final = (
    MessageStream(ORDERS, "orders-web", 0.08),
    MessageStream(ORDERS, "orders-shop", 0.12),
    *(MessageStream(PAYMENTS, f"payments-{name}", 0.2, session_id=name) for name in SESSIONS),
    MessageStream(AUDIT, "audit-login", 0.15, subscription=SUBSCRIPTION),
    MessageStream(AUDIT, "audit-batch", 0.5, batch=4, subscription=SUBSCRIPTION),
)
