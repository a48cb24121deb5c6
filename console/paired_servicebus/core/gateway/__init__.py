"""The rules about the gateway's clients: their names, where their sends go, and what the operator should do."""
