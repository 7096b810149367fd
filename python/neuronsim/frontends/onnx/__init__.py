"""ONNX: every operator a function of arrays, run node by node; what depends on no input is computed,
the rest recorded.
"""
