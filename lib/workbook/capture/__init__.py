"""What SGLang's compile machinery and CUDA graph capture make of a small module."""
