"""The documentation as a site: the Markdown of the repository, as MkDocs wants it."""
