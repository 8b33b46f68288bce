"""A real SGLang server and its benchmark: launch profiles, life cycle, measurement."""
