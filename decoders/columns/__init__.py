"""Conversion between text columns and typed columns, for the text formats."""
