"""Why piecewise CUDA graph capture dies at the border between Dynamo and run-time compiled kernels."""
