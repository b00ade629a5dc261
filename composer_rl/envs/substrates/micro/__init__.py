"""The embedded testbed: generated Python modules with one deleted function body, edited through JSON tool calls."""
