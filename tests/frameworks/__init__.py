"""autocap beside the real frameworks: `make test-frameworks`.

The suite leaves this folder out: importing these frameworks costs more than all the rest. Each play is one process
(or one launcher's) that goes through several scenes in a row and tells what it saw; the tests read that.
"""
