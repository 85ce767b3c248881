"""A kata as a function of tensors, as a torch operator, and as the `%%kata` of a notebook."""
