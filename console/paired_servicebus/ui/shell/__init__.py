"""The Textual app and its wiring: startup, command dispatch, prompts, palette, preferences, screenshots."""
