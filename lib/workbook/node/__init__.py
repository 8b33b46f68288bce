"""Where processes run: one protocol, an implementation a kind of node."""
