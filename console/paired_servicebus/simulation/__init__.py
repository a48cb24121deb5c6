"""The shipped rules in a simulated World: a seed draws a pairing, its load and its faults; virtual time runs them.

What decides is `paired_servicebus.core`, as it is shipped: PairingMachine, SendRouter, Rotation, DestinationCircuits, envelope, verdicts. What the
World replaces are the adapters of paired_servicebus.pairing and what is behind them: clock, network, namespaces, operators.
Chaos, then heal, then quiet, then the balance. A failing seed replays exactly.

Rules: knows core alone; one source of chance a run, `random.Random(seed)`; no clock but its own; nothing may depend on
the order of a set or on a hash. Checks look at what happened in the World, never at what an adapter says of itself.

    clockwork   virtual time and processes          plan      what a seed draws; a recorded history could say it too
    namespaces  destinations and backlog queues     network   one request's way, and what faults do to it
    engine      one engine: machine, pings, probes  sending   a sender's way          moving  a pump's way
    watch       the rules looked after at run time  world     one run                 bugs    mistakes put in on purpose
    campaign    many seeds and all bugs             command   what `paired simulate` prints
"""
