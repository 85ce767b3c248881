"""One learner's record: grades, hints, solutions seen, and the next kata."""
