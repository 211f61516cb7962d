#!/bin/sh
# Slurm's Prolog on a compute node, beside prolog.sh: tunes every job that has GPUs, on all of its nodes, as its user and
# from its first node. Runs as root, ends at once, and never fails. docs/slurm.md says how it is set up.
export PATH=${TUNE_PROLOG_PATH:-/usr/sbin:/usr/bin:/sbin:/bin}
autocap=${AUTOCAP:-/opt/autocap/bin/autocap}  # where every user and every node finds it
options="--max-slowdown 5%"                   # of `autocap attach`, for all jobs of the site
off=autocap=off                               # a job is left alone with: sbatch --comment=autocap=off

[ -n "${SLURM_JOB_GPUS:-}" ] && [ -x "$autocap" ] || exit 0
first=$(scontrol show hostnames "${SLURM_NODELIST:-${SLURM_JOB_NODELIST:-}}" 2>/dev/null | head -n 1)
[ "$first" = "${SLURMD_NODENAME:-$(hostname -s)}" ] || exit 0
user=$(id -un "${SLURM_JOB_UID:-x}" 2>/dev/null) || exit 0
home=$(getent passwd "$user" | cut -d: -f6)

# A job that uses no GPU yet is looked at again each minute.
tune='
    cd "$HOME" || cd /
    row() { squeue --noheader --jobs="$1" --format="%A|%i|%t|%k" | grep "^$1|"; }
    while [ "$(row "$1" | cut -d"|" -f3)" = CF ]; do sleep 1; done
    while now=$(row "$1"); [ "$(echo "$now" | cut -d"|" -f3)" = R ]; do
        [ "$(echo "$now" | cut -d"|" -f4)" != "$3" ] || exit 0
        "$2" attach --nodes slurm --job "$(echo "$now" | cut -d"|" -f2)" --quiet $4 && exit 0
        sleep 60
    done
'
# slurmd awaits who holds its output, and kills what is left in its process group: what goes on is in one of its own.
setsid sh -c 'runuser -u "$0" -- env HOME="$1" sh -c "$2" autocap-tune "$3" "$4" "$5" "$6" </dev/null >/dev/null 2>&1 &' \
    "$user" "$home" "$tune" "$SLURM_JOB_ID" "$autocap" "$off" "$options"
exit 0
