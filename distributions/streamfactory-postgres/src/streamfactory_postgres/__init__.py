"""The stream type ``postgres``."""
