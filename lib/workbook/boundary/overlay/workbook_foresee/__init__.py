"""SGLang's own model runner on a machine without a GPU, up to the compile step of its piecewise capture."""
