"""The documentation as a site: the Markdown of the repository, converted for MkDocs."""
