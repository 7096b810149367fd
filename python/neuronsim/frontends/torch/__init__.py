"""PyTorch: programs of torch.export, every operator of ATen a function of arrays; parameters are
constants that can be swapped.
"""
