"""The array backend: NumPy's names on the device's number formats."""
