"""A user's own package: what the tests of the command line train with."""
