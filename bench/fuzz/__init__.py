"""Hostile input for every command's parser and every file format, in child processes with limits."""
