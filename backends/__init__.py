"""Built-in stream types. Each is a plug-in; none imports another."""
