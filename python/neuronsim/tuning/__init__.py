"""Measuring what settings cost in accuracy and gain in time, and choosing one."""
