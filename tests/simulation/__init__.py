"""Campaigns over the simulated World of paired_servicebus.simulation: seeds, checks and deliberate mistakes.

A run has chaos, recovery, quiet, and the balance. A failing seed replays exactly. `python -m tests.simulation` runs it.

    plan_generator   the values drawn by a seed      checked_world    one seed's run
    invariants       the rules checked during a run  state_invariants the rules of SPEC.md section 6
    pump_invariants  the rules of section 8          planted_bugs     deliberate mistakes
    campaign         many seeds, and one bug         simulate_command all of them, and the output
    pairing_campaign the world as a campaign runs it fleet            the same for the rules of the fleet
"""
