"""The options of the framework, and the types of their values."""
