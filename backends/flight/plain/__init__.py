"""Other Flight servers as sources: ``protocol=plain``."""
