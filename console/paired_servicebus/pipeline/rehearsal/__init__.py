"""What would have happened under another policy: recorded failures, replayed through the shipped rules.

    history    what is known of an hour: outages, each with the times between which it began and ended, and the load
    recorded   a journal's records to a History     made_up    a History from chance, where nothing is recorded
    replay     one History, one policy, one seed: a run of paired_servicebus.simulation's World
    grid       the policies that are asked for, and the runs of each, in chunks
    table      runs to figures a policy, and the recommendation
    asked      what the command line asks for, as values   said       the result in words
    command    what `paired rehearse` does                 spread     the chunks on Spark, in a process of its own

Rules: nothing here but `spread` knows of Spark. A run depends on its History, policy and seed alone: the same on any
machine and in any order. Nothing is said that the record does not hold: where it leaves two readings, both are run.
"""
