"""From text to a validated configuration, with every problem at once."""
