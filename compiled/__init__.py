"""The optional compiled core, and Arrow arrays into and out of it."""
