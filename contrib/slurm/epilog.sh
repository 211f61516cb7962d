#!/bin/sh
# Slurm's Epilog on a compute node: takes back what prolog.sh gave, and puts back what an autocap of the job left that
# was killed. Runs as root. An Epilog that fails takes its node out of service, so this one does not.
PATH=/opt/autocap/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
state=${AUTOCAP_STATE_DIR:-/run/autocap}

case ${SLURM_JOB_ID:-x} in *[!0-9]*) exit 0 ;; esac
rm -f "$state/policy.d/slurm-$SLURM_JOB_ID.toml" "$state/policy.d/slurm-$SLURM_JOB_ID.toml.new"
# The helper has put back what it lent when the job's processes ended. This is for jobs that set limits as root.
command -v "${AUTOCAP:-autocap}" >/dev/null 2>&1 && timeout 20 "${AUTOCAP:-autocap}" restore >&2
exit 0
