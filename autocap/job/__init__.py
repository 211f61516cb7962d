"""The training job as processes: started or attached to, signals, whose rights."""
