"""A kata as a function of tensors and as a torch operator."""
