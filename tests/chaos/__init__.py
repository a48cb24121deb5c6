"""Chaos with real processes: a sandbox, senders, receivers and an engine, faults and kills drawn from a seed.

    plan.py       what is broken, in which order: data, drawn from the seed alone
    director.py   performs it, and proves after each part that all works again with no restart
    actors.py     the processes; sender.py and receiver.py are what runs in two kinds of them
    lists.py      what each process writes down, on disk, as it happens
    checker.py    the verdict, from those lists and nothing else
    evidence.py   where a message that is missing, or too many, was last seen

`python -m tests.chaos --minutes 20 --seed 7`. The journal of the system is evidence, never part of the verdict
(SPEC.md section 11).
"""
