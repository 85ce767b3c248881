"""What one person has done: grades, hints, solutions seen, and so what comes next."""
