"""Flight servers that know nothing of us, as sources: ``protocol=plain``."""
