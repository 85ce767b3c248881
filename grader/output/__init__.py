"""A Grade as people and programs read it: text, JSON, a terminal, what all commands print."""
