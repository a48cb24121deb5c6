"""The management API of one namespace: Atom entries over HTTPS, for the SDK's administration client.

Not here: limits of entities (broker), Azure Resource Manager (`arm`, which uses the tables here), `$management` over
AMQP.
"""
