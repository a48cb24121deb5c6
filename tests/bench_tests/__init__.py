"""Tests of the benches, shipped and developers': they run, small; speed is not judged here."""
