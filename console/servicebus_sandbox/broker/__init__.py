"""The broker: what a Service Bus namespace does with messages, without any wire.

Pure: standard library only, no I/O, no randomness; the clock comes in. Payloads are never opened. AMQP, HTTP, tokens
and faults live outside.
"""
