"""The client: a log store that is in another process."""
