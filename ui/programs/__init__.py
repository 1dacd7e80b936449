"""``/api/v1`` beyond reading: changes, live rows, and what answers have in common."""
