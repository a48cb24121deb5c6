"""The broker: the messaging of a Service Bus namespace, without any protocol.

Pure: standard library only, no I/O, no randomness; the clock is an argument. It never reads payloads. Not here: AMQP,
HTTP, tokens and faults.
"""
