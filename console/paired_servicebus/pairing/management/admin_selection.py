"""The choice of the management port for a caller's administration client."""

from __future__ import annotations

from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from paired_servicebus.pairing.management.management_port import Management, SecondaryAdmin


def management_of(admin: SecondaryAdmin) -> Management:
    """Return a port of the caller's own, or the SDK's client behind AtomAdmin."""
    return AtomAdmin(admin) if isinstance(admin, ServiceBusAdministrationClient) else admin
