"""Output to a terminal: profiles, themes, writing only changed cells, ASCII and monochrome, the crash log."""
