"""The GPU kernels as compiled code, on a machine that needs no GPU: what they use, and what that suggests."""
