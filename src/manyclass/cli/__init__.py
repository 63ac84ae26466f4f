"""The command line ``manyclass``: one module a command, numerical libraries imported only when one runs."""
