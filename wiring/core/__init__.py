"""Common parts of `wiring`: time, closing, errors and retries, schema conformance."""
