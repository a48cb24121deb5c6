"""Ports, and what everybody who serves on one shares.

    listener, sniffing   one port of a namespace: sockets accepted, protocols told apart by their first bytes
    tls                  the sandbox's certificates
    websocket            AMQP inside a WebSocket
    conditions           how a refusal is said on the wire
    http_faults          what faults do to a request of management
    complaints, http_log what was refused, logged once for each reason

Not here: what is said on a connection once it speaks: `amqp_server`, `atom` and `arm`.
"""
