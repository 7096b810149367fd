"""Compiling a planned module to a flat list of steps, and running it."""
