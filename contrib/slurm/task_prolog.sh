#!/bin/sh
# Slurm's TaskProlog: tells the tasks of a job where the helper listens, where they may ask it. Runs as the user; lines
# that begin with export are put into the task's environment.
socket=${AUTOCAP_STATE_DIR:-/run/autocap}/helper.sock
[ -S "$socket" ] && [ -w "$socket" ] && echo "export AUTOCAP_HELPER=$socket"
exit 0
