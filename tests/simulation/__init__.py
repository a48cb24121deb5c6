"""Campaigns over the simulated World of paired_servicebus.simulation: seeds, checks and deliberate mistakes.

A run has chaos, recovery, quiet, and the balance. A failing seed replays exactly. `python -m tests.simulation` runs it.

    plan_generator   the values drawn by a seed      seeded_run       one seed's run
    campaign         many seeds and all bugs         planted_bugs     deliberate mistakes
    simulate_command the output                      fleet            the same for the rules of the fleet
"""
