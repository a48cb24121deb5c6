"""The hooks into the SDK's interiors, with other releases of azure-servicebus."""
