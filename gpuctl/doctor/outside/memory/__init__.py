"""Memory limits of shares, as nodes publish them and claims tell of them."""
