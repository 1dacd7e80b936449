"""What every folder of wiring uses: time, closing, errors and retries, checked rows."""
