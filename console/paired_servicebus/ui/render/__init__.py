"""Text and roles: spans, cell widths, number formats, a sentence for each event. No Textual, no colours."""
