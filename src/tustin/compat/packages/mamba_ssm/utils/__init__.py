"""Around the models."""
