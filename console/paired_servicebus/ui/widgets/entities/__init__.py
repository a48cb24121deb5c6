"""The table of entities: rows, reasons, the fold of the quiet ones, and what all engines of the fleet say of each."""
