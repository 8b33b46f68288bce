"""Figures, tables and the HTML report. Reads records, never a node."""
