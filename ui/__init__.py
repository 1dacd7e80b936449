"""The page in the browser: streams, pipelines, dead letters and checkpoints."""
