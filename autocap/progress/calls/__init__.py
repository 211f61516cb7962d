"""`--progress calls`: the kernel counts the calls of a function in processes that run already.

A uprobe event of perf, one a thread: nothing is put into the job but the breakpoint that the kernel keeps there for as
long as the event is open, so it is gone with us, however we end. Each call writes its time and the count so far into a
small ring that the kernel overwrites: the newest record is all that is read, and no lost one can falsify the count.
"""
