"""Messages to rows: decoders, schema contracts, error budgets, dead letters."""
