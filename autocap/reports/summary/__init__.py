"""The one record behind the terminal's table, `result.json` and every other report, and how events become it."""
