"""The modules: Mamba and the block around it."""
