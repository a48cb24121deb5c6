"""The fleet scenario: eight engines in processes of their own, an order over all of them, one of them cut off."""
