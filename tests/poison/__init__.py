"""Messages made to do harm, among good ones: what a pump makes of them, and what they cost everything else."""
