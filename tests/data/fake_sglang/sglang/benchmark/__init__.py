"""Its benchmark, where SGLang 0.5.16 and later have it."""
