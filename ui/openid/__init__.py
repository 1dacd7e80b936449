"""Sign-in by OpenID Connect: the provider, and the routes of the pages."""
