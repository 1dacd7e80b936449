"""Metrics of the framework: one vocabulary, one registry, several ways to read it."""
