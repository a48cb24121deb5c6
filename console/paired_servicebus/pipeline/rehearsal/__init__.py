"""Rehearsal of other policies: recorded failures, replayed through the shipped rules.

A run depends only on its history, policy and seed: it is the same on any machine and in
any order. Where the record leaves two readings, both are run.
"""
