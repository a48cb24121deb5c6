"""The widgets of every page (header, summary, answer, keys), and the base class that draws lines of spans."""
