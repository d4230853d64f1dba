"""Tables, plots and the paper's figures: what studies and benchmarks show their results with."""
