"""Where a rehearsal's history comes from: a journal's outages and load, or a synthetic hour."""
