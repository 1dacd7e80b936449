"""Writes streams: from rows to committed epochs; writers, committers, routing."""
