"""AMQP 1.0 for both roles: bytes in, events out; actions in, bytes out.

    protocol.connection       the object that an owner drives; sessions live inside it
    protocol.links            its events, and the two ends of a link
    encoding.message_sections an encoded message's sections, kept raw
    encoding                  values of AMQP, composites, performatives, delivery states, termini
    access                    addresses of links, tokens, and the access that they prove
    server                    the server's side of a connection, its limits and budgets

Rules: the standard library only. Encoding and protocol have no sockets, no clock, no asyncio. Bodies are never decoded.
"""
