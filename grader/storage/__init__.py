"""Files that appear whole or not at all: the cache, its locks, and what says that an entry is undamaged."""
