"""What is relayed to the primary one to one: receivers, and `$management` but for schedules."""
