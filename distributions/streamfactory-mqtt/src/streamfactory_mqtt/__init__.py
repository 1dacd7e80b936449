"""The stream type ``mqtt`` for streamfactory."""
