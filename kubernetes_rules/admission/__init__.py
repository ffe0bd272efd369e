"""Which writes the rules of webhooks and policies match, and what their configurations may say."""
