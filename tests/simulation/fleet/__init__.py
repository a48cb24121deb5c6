"""The rules of the fleet in a simulated world: engines, consoles and an enemy on two boards, in virtual time.

paired_servicebus.core.fleet decides, as it is shipped: FleetMember, EngineOrders, OrderDraft. The World replaces the
boards, the guard of each engine and the network. A signature is modelled: it names a key and the exact signed bytes.
A run has chaos, recovery, new orders on a sound fleet, and their end. A failing seed replays exactly.

    fleet_plan        the values drawn by a seed     sim_board         a board, and the faults on the way to it
    order_truth       the rules a second time        sim_guard         what holds in one engine
    sim_fleet_engine  one engine and its boots       sim_console       a console and its operator
    sim_enemy         posts of an enemy              fleet_invariants  the rules checked during a run
    fleet_run         what the parts share           fleet_world       one run
    fleet_bugs        deliberate mistakes            fleet_campaign    the world as a campaign runs it
"""
