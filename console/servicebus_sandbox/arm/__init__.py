"""Azure Resource Manager: management of all namespaces by callers with a role instead of a key.

Not here: the management API of one namespace (`atom`), bearer tokens (`access`).
"""
