"""The stream type ``http`` for streamfactory."""
