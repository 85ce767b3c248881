"""The commands of `kata` that belong to no other room, a module for each group."""
