"""One power budget over the GPUs of several nodes: a site above the managers of the nodes.

On each node runs a manager as `autocap budget` has it on one machine: it finds jobs, lends devices to tuners, guards
all limits, and shares its *part* of the budget among its jobs. The site, where the user typed the command, gives each
node its part. Both speak lines of `nodes.protocol` over the engine's step, or its actors, as the agents of
`run --nodes` do.

    node -> site   Hello, Found      it is there, with these devices; all are at their floor, the lowest caps
    site -> node   Share             every 0.4 s and whenever a part changes: each node's part, with its order's serial
    node -> site   Books             in answer to each, and whenever something changes: its jobs with their curves, the
                                     serial of the part that it holds, and the most that may be in force until another
    node -> site   Note              a sentence for the user
    site -> node   Do(END)           put back, and leave
    node -> site   Done | Failed     what became of the limits; or why it leaves, all of them put back

- **Lower first.** The site shares the budget among all jobs by the rule that one machine's manager has
  (`budget.shares`), and a node's part is what its jobs get, with what it needs beside them. A part is raised
  once the sum of what may be in force, with the raise, is within the budget: a lower part counts from when the node has
  confirmed it (`budget.orders`).
- **A part is a lease.** It holds for 2 s after the latest answer of the node's that it knows to be heard
  (`autocap.limits.lease`: a word alone proves nothing, as it may be old, or of a site that cannot hear us). Then
  the node falls to its floor by itself. It takes a part again when it knows itself heard again, and never takes one
  from words that are older. Budgets below the sum of all floors are refused.
- **Who is not heard** is charged with the part until 3 s after the latest answer, then with its floor, and with the
  limits found from 15 s after the latest word that it has answered: a node that has heard nothing for 15 s puts them
  back and leaves. So it is when the site is gone for good; one that was killed is started again before, and its node
  ends take over from those that wait.
- **Who is gone**, as its engine says, is charged with its limits found at once, and a node end is started there again.
"""
