"""What Dynamo makes of a call: the trace, the patches that get past a blocker, the entry points."""
