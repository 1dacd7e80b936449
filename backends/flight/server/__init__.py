"""The server: topics of a log store over Arrow Flight."""
