"""The live page: follow runs in a browser, and replay any moment of their virtual time.

`follow` reads a run on as it is written, `views` shows the report's sections as of a moment, `app` serves both with the
page's own few files. Nothing is fetched from elsewhere and nothing can be changed through it.
"""
