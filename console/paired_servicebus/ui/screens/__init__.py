"""The screens: the pages of the console, and the dialogs over them."""
