"""Paired namespaces for Azure Service Bus: keep sending while the primary namespace is down, and lose nothing.

The names for applications. Each is imported on its first use, so that the command line starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from paired_servicebus.extras import explain_missing

if TYPE_CHECKING:
    from paired_servicebus.application import PairingOpener, pair_namespaces
    from paired_servicebus.core.errors import (
        BacklogMessageSizeError,
        BacklogQueueError,
        BacklogUnavailableError,
        CleanUpError,
        ConfigurationError,
        EngineStartError,
        ForeignLoopError,
        IllegalEventError,
        ImpossibleMessageError,
        NamespaceUnreachableError,
        PairedClientError,
        PairedError,
        PairingClosedError,
        PairingError,
        ReservedPropertyError,
        SameNamespaceError,
        ScheduledInBacklogError,
        SendError,
    )
    from paired_servicebus.core.model.verdict import FailureKind, Judgement, Verdict, judge
    from paired_servicebus.namespaces import Namespace
    from paired_servicebus.pairing import (
        ArmAdmin,
        PairedNamespaceOptions,
        PairedReceiver,
        PairedSender,
        PairedServiceBusClient,
        SendAvailabilityPairedNamespaceOptions,
        tls_context,
    )
    from paired_servicebus.sections.fleet_options import Fleet

_ERRORS = "paired_servicebus.core.errors"
_VERDICT = "paired_servicebus.core.model.verdict"
_PAIRING = "paired_servicebus.pairing"
_HOMES = {
    "ArmAdmin": _PAIRING,
    "FailureKind": _VERDICT,
    "Fleet": "paired_servicebus.sections.fleet_options",
    "Judgement": _VERDICT,
    "Namespace": "paired_servicebus.namespaces",
    "PairedNamespaceOptions": _PAIRING,
    "PairedReceiver": _PAIRING,
    "PairedSender": _PAIRING,
    "PairedServiceBusClient": _PAIRING,
    "PairingOpener": "paired_servicebus.application",
    "SendAvailabilityPairedNamespaceOptions": _PAIRING,
    "Verdict": _VERDICT,
    "judge": _VERDICT,
    "pair_namespaces": "paired_servicebus.application",
    "tls_context": _PAIRING,
}
"""The module of each public name but the errors, which are all in one."""

__all__ = [
    "ArmAdmin",
    "BacklogMessageSizeError",
    "BacklogQueueError",
    "BacklogUnavailableError",
    "CleanUpError",
    "ConfigurationError",
    "EngineStartError",
    "FailureKind",
    "Fleet",
    "ForeignLoopError",
    "IllegalEventError",
    "ImpossibleMessageError",
    "Judgement",
    "Namespace",
    "NamespaceUnreachableError",
    "PairedClientError",
    "PairedError",
    "PairedNamespaceOptions",
    "PairedReceiver",
    "PairedSender",
    "PairedServiceBusClient",
    "PairingClosedError",
    "PairingError",
    "PairingOpener",
    "ReservedPropertyError",
    "SameNamespaceError",
    "ScheduledInBacklogError",
    "SendAvailabilityPairedNamespaceOptions",
    "SendError",
    "Verdict",
    "judge",
    "pair_namespaces",
    "tls_context",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, _ERRORS)
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        sentence = explain_missing(error, what=f"{__name__}.{name}")
        if sentence is None:
            raise
        raise ImportError(sentence) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
