"""The offline bundle of a stack, for a node without a network."""
