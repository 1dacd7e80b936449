"""The command line: commands compute, printers print."""
