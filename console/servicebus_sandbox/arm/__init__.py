"""Azure Resource Manager: management of all namespaces by those who have a role rather than a key.

    server                       its port
    resource_manager, addresses  a request in, an answer out; what its address names
    namespaces, entities, keys   what is done for which address
    calls                        what these share
    descriptions                 their JSON

Not here: what one namespace's own management API says, in `atom`; bearer tokens, in `access`.
"""
