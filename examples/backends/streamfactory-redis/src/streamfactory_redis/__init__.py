"""The stream type ``redis``: Redis Streams for streamfactory."""
