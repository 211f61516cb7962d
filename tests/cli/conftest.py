from tests.cli.test_cli import cli, here

__all__ = ["cli", "here"]  # the fixtures
