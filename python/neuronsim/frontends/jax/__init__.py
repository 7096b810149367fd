"""JAX as a front door: its functions, what it makes of them, and StableHLO."""
