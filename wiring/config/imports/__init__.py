"""Configurations of other systems: Pinot's table configs, Hop's metadata."""
