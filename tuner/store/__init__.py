"""Commands on databases: check, export, import, merge, refresh, maintain and print their rows."""
