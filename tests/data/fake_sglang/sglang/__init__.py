"""Stands where SGLang would, so that its lifecycle and its benchmark can be tested in a second."""
