"""A namespace over AMQP: connections, the links on them, and the nodes that answer requests.

    node                            one namespace on its port: it drives the broker and owns the connections
    connection                      bytes in, events to links, one write for each read
    attaching                       what a link that opens may, and what it gets
    links, request_links            those that carry messages, and requests; served_link is what they share
    cbs, entity_management          the nodes `$cbs` and `{entity}/$management`
    requests, rule_maps             how those are spoken to
    wire_messages, wire_properties  messages between the wire and the broker
    delay_line                      injected latency that keeps order

Not here: what AMQP itself asks for (servicebus_amqp), what becomes of a message (the broker), who may (access).
"""
