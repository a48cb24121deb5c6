"""The one tree of errors. Each says what happened, where, and what to do; each is raised `from` its cause.

    PairedError
    ├── ConfigurationError (ValueError)      a pairing.toml or an option that cannot be used
    │   └── ConfigurationMissingError        no pairing.toml was named, and none was found
    ├── UnreadableError (ValueError)         foreign bytes, of a disk or a peer, that are not in the form agreed on
    ├── PairingError                         pairing two namespaces did not succeed
    │   ├── SameNamespaceError (ValueError)  primary and secondary are one namespace
    │   ├── BacklogQueueError                not one backlog queue could be found or made
    │   ├── NamespaceUnreachableError        a namespace did not answer, or refused the credential
    │   ├── PairedClientError                one side was closed or faulted without its partner
    │   ├── PairingClosedError (ValueError)  the pairing, or the sender, was closed
    │   └── ForeignLoopError (RuntimeError)  the pairing was made in another event loop
    ├── SendError                            the caller still owns its message
    │   ├── BacklogUnavailableError          failed over, and no backlog queue took the message
    │   ├── BacklogMessageSizeError (ValueError)  larger than a backlog queue accepts
    │   ├── ReservedPropertyError (ValueError)    carries a property the envelope needs
    │   └── ScheduledInBacklogError          a number that no queue of the primary has given
    ├── EnvelopeError                        a backlog message that cannot be translated back
    ├── WireError                            a connection of our own to a namespace; carries the AMQP condition
    │   ├── WireUnavailableError             a namespace or a client that such a connection cannot be had for
    │   ├── WireTimeoutError (TimeoutError)  no answer within our own deadline
    │   ├── WireConnectionError              not connected, or connected no longer
    │   ├── WireAuthenticationError          no token, or one that was refused
    │   ├── WireLinkError                    a link refused or detached
    │   ├── WireOutcomeError                 a message that was not accepted
    │   └── WireRequestError                 a request that was answered with no
    ├── CleanUpError                         an unused backlog queue stays, and why
    ├── DrainError                           a drain cannot begin, or cannot go on
    ├── PipelineError                        the journal's tables and what makes and reads them
    │   ├── SparkMissingError                the extra `spark` is not installed
    │   ├── JavaNotFoundError                no Java that Spark runs on
    │   ├── SparkFailedError                 Spark did not start, or gave up
    │   ├── PipelineRunningError             another pipeline writes these tables
    │   └── NoTablesError                    there are no tables to read, or none that can be read
    │       └── DamagedTablesError           their manifest is changed: nothing is made anew over them
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


class ConfigurationMissingError(ConfigurationError):
    """No pairing.toml was named, and none was found; the text names the places."""


class UnreadableError(PairedError, ValueError):
    """Bytes of a disk or a peer that are not in the form agreed on; the text says why, and repeats nothing raw."""


class PairingError(PairedError):
    """Two namespaces could not be paired, or can be paired no longer."""


class SameNamespaceError(PairingError, ValueError):
    """The primary and the secondary are one namespace (SPEC.md section 1)."""


class BacklogQueueError(PairingError):
    """No backlog queue could be found or made (SPEC.md section 4.4)."""


class NamespaceUnreachableError(PairingError):
    """A namespace did not answer in time, or did not accept the credential, while pairing.

    `is_outage`: it may answer later. Otherwise it answered with a refusal, or the address or certificate is wrong.
    """

    def __init__(self, text: str, *, is_outage: bool = False) -> None:
        super().__init__(text)
        self.is_outage = is_outage


class PairedClientError(PairingError):
    """One side of the pairing was closed or faulted and its partner was not (SPEC.md section 9)."""


class PairingClosedError(PairingError, ValueError):
    """The pairing or the sender was closed (SPEC.md section 9). A ValueError, as the SDK raises on a closed sender.

    `in_doubt`: the send was under way and may have arrived; otherwise nothing of it was sent.
    """

    def __init__(self, text: str, *, in_doubt: bool = False) -> None:
        super().__init__(text)
        self.in_doubt = in_doubt


class ForeignLoopError(PairingError, RuntimeError):
    """A paired client or sender was used from another event loop than the one that made it; nothing was sent."""


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


class WireError(PairedError):
    """A connection of our own, or what goes over it, failed.

    condition: the AMQP condition the peer gave, by which the failure is judged (SPEC.md section 5); None for none.
    """

    def __init__(self, description: str, condition: str | None = None) -> None:
        super().__init__(description)
        self.condition = condition


class WireUnavailableError(WireError):
    """No connection of our own can be had: the SDK's is to be used instead, and the text says why."""


class WireTimeoutError(WireError, TimeoutError):
    """The namespace did not answer within a deadline of ours."""


class WireConnectionError(WireError):
    """The namespace could not be connected, or the connection to it has ended."""


class WireAuthenticationError(WireError):
    """The credential gave no token, or the namespace did not take it."""


class WireLinkError(WireError):
    """A link was refused, or has been detached."""


class WireOutcomeError(WireError):
    """A message was rejected, released or modified instead of accepted."""


class WireRequestError(WireError):
    """A request to the namespace was answered with no; `status` is its number, 404 for instance."""

    def __init__(self, description: str, condition: str | None = None, *, status: int) -> None:
        super().__init__(description, condition)
        self.status = status


class DrainError(PairedError):
    """A drain cannot begin, or cannot go on; what was moved is moved, and what was not lies where it lay."""


class CleanUpError(PairedError):
    """An unused backlog queue was not deleted; the text says why, and how it was left (SPEC.md section 4.3)."""


class PipelineError(PairedError):
    """The tables of a journal could not be made or read."""


class SparkMissingError(PipelineError):
    """Spark is not installed; the text says how to get it."""


class JavaNotFoundError(PipelineError):
    """There is no Java that Spark runs on; the text says where was looked."""


class SparkFailedError(PipelineError):
    """Spark did not start, or a job of ours failed in it; the text has the first line of its reason."""


class PipelineRunningError(PipelineError):
    """Another pipeline writes the same tables."""


class NoTablesError(PipelineError):
    """There are no tables, or they were written in a way that this program does not know."""


class DamagedTablesError(NoTablesError):
    """The tables' manifest cannot be read; what it names may be fine, and is nobody's to delete but its owner's."""


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
