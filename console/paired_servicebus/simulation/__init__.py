"""The shipped rules in a simulated World: virtual time runs a plan of load and faults.

paired_servicebus.core decides, as it is shipped: PairingMachine, SendRouter, Rotation, DestinationCircuits, envelope,
verdicts. The World replaces the adapters of paired_servicebus.pairing and their surroundings: clock, network,
namespaces, operators. `paired rehearse` runs recorded histories in it; tests/simulation runs seeds.

Rules: imports core only; one source of randomness a run, `random.Random(seed)`; no clock but its own; no dependence on
the order of a set or on a hash. Checks examine the events in the World, never an adapter's own report.

    virtual_clock     virtual time and processes         run_plan         the values of one run
    sim_namespaces    destinations and backlog queues    network          one request's way, and its faults
    sim_engine        one engine: machine, pings, probes
    sim_sender        a sender's way                     sim_pump         a pump's way
    run_record        what a run reports to its record   world            one run
"""
