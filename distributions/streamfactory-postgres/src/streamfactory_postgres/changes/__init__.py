"""``postgres-changes``: the changes of a table, by logical decoding."""
