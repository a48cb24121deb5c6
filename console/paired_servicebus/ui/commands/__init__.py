"""What keys do: the table of actions, the consequences shown before each, and what can be copied."""
