"""Reads and validates stream configurations; reports all problems at once."""
