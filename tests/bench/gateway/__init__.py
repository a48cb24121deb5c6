"""`python -m tests.bench gateway`: what a gateway adds to its clients' sends, and what it takes for itself."""
