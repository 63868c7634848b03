"""Charts: inline SVG for the page, and Matplotlib figures for papers and slides."""
