"""What a run needs of a node: facts gathered there by probes, judged here."""
