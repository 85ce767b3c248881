"""A Grade as people and programs read it: `verdict_text`, `grade_json`, a terminal; and what all commands print."""
