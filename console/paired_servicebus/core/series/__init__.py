"""Figures over time, for graphs: the engine keeps them, and a console shows them."""
