"""The shipped rules in a simulated World: a seed draws a pairing, its load and its faults; virtual time runs them.

paired_servicebus.core decides, as it is shipped: PairingMachine, SendRouter, Rotation, DestinationCircuits, envelope,
verdicts. The World replaces the adapters of paired_servicebus.pairing and their surroundings: clock, network,
namespaces, operators. A run has chaos, recovery, quiet, and the balance. A failing seed replays exactly.

Rules: imports core only; one source of randomness a run, `random.Random(seed)`; no clock but its own; no dependence on
the order of a set or on a hash. Checks examine the events in the World, never an adapter's own report.

    virtual_clock     virtual time and processes         run_plan         the values drawn by a seed
    sim_namespaces    destinations and backlog queues    network          one request's way, and its faults
    sim_engine        one engine: machine, pings, probes
    sim_sender        a sender's way                     sim_pump         a pump's way
    invariants        the rules checked during a run     state_invariants the rules of SPEC.md section 6
    world             one run                            planted_bugs     deliberate mistakes
    campaign          many seeds and all bugs            simulate_command the output of `paired simulate`
"""
