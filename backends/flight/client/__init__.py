"""The client half: a log store that lives in another process."""
