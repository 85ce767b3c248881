"""Files that appear complete or not at all: the cache, its locks, and the manifests that show damage."""
