"""From YAML to objects: checks, resolvers, paths. Never imports torch."""
