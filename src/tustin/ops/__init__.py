"""HOW things run: the operators, each with its reference and its fused kernels, and what they share."""
