"""Administration of topics: create, show, grow, trim, delete."""
