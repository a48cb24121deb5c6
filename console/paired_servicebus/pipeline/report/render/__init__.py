"""A report as a document, and a document as Markdown, HTML and pictures."""
