"""The stream type ``nats``: NATS JetStream for streamfactory."""
