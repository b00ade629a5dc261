"""The task sources an environment can stand on."""
