"""What the console knows, as frozen values: View, rows of each page, the verdict in words. No Textual."""
