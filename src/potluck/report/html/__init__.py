"""The report as one HTML page: its parts, tables and sections."""
