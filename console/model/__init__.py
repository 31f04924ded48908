"""Commands about models: list, show, explain, compare, export, promote, roll back, sign."""
