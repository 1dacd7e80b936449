"""Stream types and decoders: how they are found, checked and made."""
