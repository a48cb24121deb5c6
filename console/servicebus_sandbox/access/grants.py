"""The access that one connection has proven, by the names that the sandbox's rooms know.

`authorization` judges tokens, `amqp_server.link_attach` chooses the right for a link.
"""

from __future__ import annotations

from servicebus_amqp.access.grants import MAX_GRANTS, MAX_PATH, Grants, ProvenAccess
from servicebus_amqp.access.sas_tokens import Flaw, TokenError

__all__ = ["MAX_GRANTS", "MAX_PATH", "Flaw", "Grants", "ProvenAccess", "TokenError"]
