"""The CPU engine: a model captured, fused, packed and run in channels last by compiled kernels."""
