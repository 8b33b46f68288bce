"""The commands of `workbook`, a module a subject; cli.py puts them together."""
