"""Programs on the frameworks that people use, through a gateway while the primary is away."""
