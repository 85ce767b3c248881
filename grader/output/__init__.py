"""A Grade as people and programs read it: text (`report`), JSON (`grade_json`), a terminal, what all commands print."""
