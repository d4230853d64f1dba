"""What is Triton upstream; here each runs on whatever backend fits."""
