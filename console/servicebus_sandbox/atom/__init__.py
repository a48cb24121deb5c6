"""The management API of one namespace: Atom entries over HTTPS, as the SDK's administration client speaks it.

    https                  HTTP, on connections that the listener accepted
    management, resources  a request in, an answer out; what its URL names
    envelopes              feeds and entries
    descriptions           the XML in them; rule_descriptions, key_descriptions, durations what it is built of

Not here: which settings an entity may have, which is the broker's; Azure Resource Manager, in `arm`, which borrows the
descriptions; `$management` over AMQP.
"""
