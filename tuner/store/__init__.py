"""Commands on databases: check, export, import, merge, upgrade, maintain and print their rows."""
