"""What maintainers write, read and validated: difficulty.yaml, specs, skeletons, hints, questions."""
