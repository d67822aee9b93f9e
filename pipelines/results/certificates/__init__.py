"""Certificates of models: how far what should not matter moves their rewards. Knows no engine and no run."""
