"""Programs that make parts of the documentation: tables, pictures, the site."""
