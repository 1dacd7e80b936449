"""Decoding of messages to rows: schema contracts, error budgets, dead letters."""
