"""Servers of streams, and their metrics."""
