"""Programs that play `scontrol` and `sacct`, with answers in the form that Slurm 22.05 gives."""

from pathlib import Path

_CONFIG = """\
Configuration data as of 2026-11-23T08:43:53
AccountingStorageType   = accounting_storage/slurmdbd
AcctGatherEnergyType    = {plugin}
AcctGatherNodeFreq      = {every_s} sec
SLURM_VERSION           = 22.05.8
"""
_JOB = """\
JobId={job} JobName=train
   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NumNodes=1 NumCPUs={cpus} NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   OverSubscribe={shares} Contiguous=0 Licenses=(null) Network=(null)
   Command=OverSubscribe=NO
"""
_NODE = "NodeName=node1 Arch=x86_64 CPUEfctv=8 CPUTot=8 CPULoad=1.30 AllocTRES=cpu=8 CurrentWatts={} AveWatts=0"
_SCRIPT = """\
#!/bin/sh
case "$*" in
  *"show config") file=config ;;
  *"show job "*) file=job ;;
  *"show node "*) file=node ;;
  *"show partition "*) file=partition ;;
  *) file=sacct; [ "$SLURM_TIME_FORMAT" = %s ] || exit 9 ;;
esac
[ -s {folder}/$file.error ] && {{ cat {folder}/$file.error >&2; exit 1; }}
cat {folder}/$file.txt
"""


class SlurmStand:
    """A Slurm in a folder: of one node with 8 CPUs, and a job 4711 there that has it for itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "4711", "SLURMD_NODENAME": "node1"}
        for name in ("scontrol", "sacct"):
            (folder / name).write_text(_SCRIPT.format(folder=folder))
            (folder / name).chmod(0o755)
        self.config()
        self.job()
        self.watts("412")
        self.put("partition", "PartitionName=main AllowGroups=ALL\n   OverTimeLimit=NONE OverSubscribe=NO\n")

    def config(self, plugin: str = "acct_gather_energy/ipmi", every_s: int = 10) -> None:
        self.put("config", _CONFIG.format(plugin=plugin, every_s=every_s))

    def job(self, shares: str = "NO", cpus: int = 8) -> None:
        self.put("job", _JOB.format(job=4711, shares=shares, cpus=cpus))

    def watts(self, text: str) -> None:
        self.put("node", _NODE.format(text) + "\n")

    def books(self, *rows: str) -> None:
        """As sacct prints them: JobID|Start|End|NNodes|AllocCPUS|ConsumedEnergyRaw|Partition|NodeList."""
        self.put("sacct", "".join(f"{row}\n" for row in rows))

    def fail(self, name: str, text: str) -> None:
        """Whatever is asked of config, job, node, partition or sacct gets this error instead, unless it is empty."""
        (self.folder / f"{name}.error").write_text(text)

    def put(self, name: str, text: str) -> None:
        (self.folder / f"{name}.txt").write_text(text)
