"""`--progress regex:PATTERN`: the child's output goes through a process of ours, which counts its lines.

The relay process writes every byte on, unchanged and at once, and then looks for the pattern in it. It has a session
of its own and outlives us, up to the end of the child's output. Towards the child it stands for the real stdout: a
slow reader slows the child as before, a reader that goes away takes the stream with it, and a terminal stays one.

What it counts is read out of a nameless shared file in memory: nobody can truncate it, and nothing is left behind.
"""

from autocap.progress.regex.lines import compile_pattern
from autocap.progress.regex.relay import Relay

__all__ = ["Relay", "compile_pattern"]
