"""From rows to committed epochs: writers, committers, routing."""
