"""A namespace over AMQP: connections, the links on them, and the nodes that answer requests.

Not here: AMQP itself (servicebus_amqp), the fate of a message (broker), authorization (access).
"""
