"""The operator's commands: the table of actions, the consequences shown before each, and texts to copy."""
