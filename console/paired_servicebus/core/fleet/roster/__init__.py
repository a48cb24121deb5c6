"""The engines of a pairing, by their documents, and what other rules take from them."""
