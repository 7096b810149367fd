"""Configurations under the names of Neural Compressor 1.14."""
