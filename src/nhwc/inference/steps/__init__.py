"""Steps that the engine runs: one file per algorithm or family, each registers its candidates for an operation."""
