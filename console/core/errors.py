"""The one tree of errors. Each says what happened, where, and what to do; each is raised `from` its cause.

    PairedError
    ├── ConfigurationError (ValueError)      a pairing.toml or an option that cannot be used
    ├── PairingError                         pairing two namespaces did not succeed
    │   ├── SameNamespaceError (ValueError)  primary and secondary are one namespace
    │   ├── BacklogQueueError                not one backlog queue could be found or made
    │   ├── NamespaceUnreachableError        a namespace did not answer, or refused the credential
    │   └── PairedClientError                one side was closed or faulted without its partner
    ├── SendError                            the caller still owns its message
    │   ├── BacklogUnavailableError          failed over, and no backlog queue took the message
    │   ├── BacklogMessageSizeError (ValueError)  larger than a backlog queue accepts
    │   ├── ReservedPropertyError (ValueError)    carries a property the envelope needs
    │   └── ScheduledInBacklogError          a number that no queue of the primary has given
    ├── EnvelopeError                        a backlog message that cannot be translated back
    ├── IllegalEventError                    the state machine was told something that cannot be; state unchanged
    └── ControlError                         talking to an engine
        ├── EngineNotRunningError            no engine answers there
        ├── EngineRunningError               an engine for this pairing runs already
        ├── EngineStartError                 the engine ended before it was ready
        └── CommandRefusedError              the guard said no

What the Service Bus SDK raises reaches the caller unchanged where the failure is the caller's own (SPEC.md section 5).
"""

from __future__ import annotations


class PairedError(Exception):
    """Everything this package raises on its own account."""


class ConfigurationError(PairedError, ValueError):
    """A setting that cannot be used; the text names the setting, its value and what would be right."""


class PairingError(PairedError):
    """Two namespaces could not be paired, or can be paired no longer."""


class SameNamespaceError(PairingError, ValueError):
    """The primary and the secondary are one namespace (SPEC.md section 1)."""


class BacklogQueueError(PairingError):
    """No backlog queue could be found or made (SPEC.md section 4.4)."""


class NamespaceUnreachableError(PairingError):
    """A namespace did not answer in time, or did not accept the credential, while pairing."""


class PairedClientError(PairingError):
    """One side of the pairing was closed or faulted and its partner was not (SPEC.md section 9)."""


class SendError(PairedError):
    """A message was not accepted; the caller still owns it."""


class BacklogUnavailableError(SendError):
    """The entity is failed over and no backlog queue took the message in time (SPEC.md section 7.1)."""


class BacklogMessageSizeError(SendError, ValueError):
    """The message, wrapped for the backlog, is larger than a backlog queue accepts (SPEC.md section 7.4)."""

    def __init__(self, *, size: int, limit: int, message_id: str) -> None:
        super().__init__(
            f"message {message_id!r} takes {size} bytes in its backlog envelope, and the backlog queues of the "
            f"secondary namespace accept {limit}: send a smaller body, or pair with a namespace of a larger tier"
        )
        self.size = size
        self.limit = limit


class ReservedPropertyError(SendError, ValueError):
    """The message already carries an application property that the envelope uses (SPEC.md section 7.2)."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the application property {name!r} is reserved for messages parked in a backlog queue: rename it"
        )
        self.name = name


class ScheduledInBacklogError(SendError):
    """A scheduled message lies in the backlog and cannot be cancelled by number (SPEC.md section 7.5)."""


class EnvelopeError(PairedError):
    """A backlog message whose properties cannot be translated back; the text says which and why."""


class IllegalEventError(PairedError):
    """An event that cannot happen in the present state. The state is as it was."""


class ControlError(PairedError):
    """An engine could not be reached, started or commanded."""


class EngineNotRunningError(ControlError):
    """No engine answers for this pairing."""


class EngineRunningError(ControlError):
    """An engine for this pairing runs already."""


class EngineStartError(ControlError):
    """The engine ended before it was ready; the text carries its reason."""


class CommandRefusedError(ControlError):
    """The guard refused a command; the text says why."""
