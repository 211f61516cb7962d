#!/bin/sh
# Slurm's Prolog on a compute node: gives the user of a job its GPUs in the policy of autocap's helper, until epilog.sh
# takes them back. Runs as root. docs/helper.md says how it is set up.
#
# A Prolog that fails takes its node out of service, so this one does not: a job whose GPUs are not given runs as ever.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
state=${AUTOCAP_STATE_DIR:-/run/autocap}
gpus=${AUTOCAP_NVIDIA_GPUS:-/proc/driver/nvidia/gpus}
# Narrower bounds for all jobs, as in the policy: min_w = 150 and the like, one a line.
bounds=""

say() { echo "autocap prolog: $1; job ${SLURM_JOB_ID:-?} is not given its GPUs" >&2; exit 0; }

[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0
case ${SLURM_JOB_ID:-x} in *[!0-9]*) say "SLURM_JOB_ID is no number" ;; esac
case ${SLURM_JOB_UID:-x} in *[!0-9]*) say "SLURM_JOB_UID is no number" ;; esac

# Slurm counts GPUs by the numbers of their files, /dev/nvidiaN; a rule names them by where they are plugged in.
devices=""
for number in $(echo "$SLURM_JOB_GPUS" | tr ',' ' '); do
    case $number in *[!0-9]*) say "SLURM_JOB_GPUS is '$SLURM_JOB_GPUS', with more than whole GPUs" ;; esac
    found=""
    for folder in "$gpus"/*; do
        minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$folder/information" 2>/dev/null)
        [ "$minor" = "$number" ] && found=$(basename "$folder")
    done
    [ -n "$found" ] || say "no GPU in $gpus has the number $number"
    devices="$devices${devices:+, }\"$found\""
done

mkdir -p -m 0711 "$state" && mkdir -p -m 0755 "$state/policy.d" || say "$state/policy.d cannot be made"
# Who was given one of these GPUs before has it no longer, also where no Epilog has said so, as after a crash of slurmd.
for old in "$state/policy.d"/slurm-*.toml; do
    for device in $(echo "$devices" | tr -d ','); do
        grep -qF "$device" "$old" 2>/dev/null && rm -f "$old"
    done
done
rule="$state/policy.d/slurm-$SLURM_JOB_ID.toml"
{
    echo "version = 1"
    echo "[[rule]]"
    echo "users = [$SLURM_JOB_UID]"
    echo "devices = [$devices]"
    echo "given = true"
    echo "$bounds"
} >"$rule.new" && mv -f "$rule.new" "$rule" || say "$rule cannot be written"
exit 0
