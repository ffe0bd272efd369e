"""What makes parts of the documentation: tables, pictures, the site."""
