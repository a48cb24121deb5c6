"""The feed of the engine on screen, the other engines on this machine, and the health of each."""
