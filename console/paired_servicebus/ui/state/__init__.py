"""The console's state as frozen values: View, the rows of each page, the summary in words. No Textual."""
