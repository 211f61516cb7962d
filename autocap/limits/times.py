"""After how long somebody counts as gone, silent, stopped or hanging, and how long putting limits back may take.

All are seconds, on the clock of whoever waits. What has to hold between them stands in `BOUNDS`, which a test tries.
How often something is merely looked at stands with whoever looks, and when a connection is closed to which nothing is
lent, with the bounds of connections. The times of budgets and of several nodes are here where they rest on these: a
node's limits are put back by a guardian and a watchdog of its own, behind its silence.
"""

# Promised to users (docs/promises.md), from the last sign of life to the limit found on arrival.
KILLED_BACK_S = 1.0  # of an owner of limits that was killed
STOPPED_BACK_S = 2.0  # of one that hangs or was stopped
POLICY_BACK_S = 3.0  # of a cap, since the helper's policy allows it no longer
NODE_CLEAR_S = 10.0  # of a node that nobody reaches: then nothing of ours is left there, however busy it is

# A watchdog waits for its controller: a session, a node's agent, a budget's manager, the helper for a client.
BEAT_APART_S, BEAT_S = 0.35, 0.4  # between two beats, at least and at most: one goes with a sample where it can
HANG_S = 1.5  # without a beat; the rest of the two seconds that are promised is for putting back
STARVED_S = 10.0  # without a beat, after which a controller counts as hung however little of the CPU it got
SPENT_S = 0.5 * HANG_S  # CPU time for which no controller that is well needs no beat
STARVED_LOOK_S = 0.1  # between looks at a controller that is silent and does not get the CPU
WOKE_LATE_S = 0.2  # for whoever wakes up so late, silence is no evidence yet: the controller was not awake either
PASS_AGAIN_S = 0.25  # between passes while it is silent: it may wake in the middle of a set, and stop again
DYING_S = 0.2  # an owner that has let go of its lock is soon gone: the kernel closes files a moment before that
LEAKED_S = 0.3  # a lock that a dead owner seems to hold this long is held by a process it forked
LINGERS_S = 5.0  # so long an owner that only lost its heartbeat may turn out to be dying, on a machine without CPU
EAGER_S, REFUSED_FOR_S = 1.0, 60.0  # a device that refuses is tried without a pause to speak of; is tried at all

# A device that does not take a limit, and who waits for a device.
ASK_AGAIN_S = (0.05, 0.1, 0.2)  # between askings for a limit that is ignored, as some drivers do now and then
ASKING_S = sum(ASK_AGAIN_S)  # one device may hold up the others for so long
DRIVER_S, DRIVER_AT_END_S = 1.0, 10.0  # nobody waits longer for a driver that hangs (GSP: 6 s); but at our own end
PUT_BACK_AGAIN_S, PUT_BACK_SELDOM_S = 0.5, 60.0  # between tries of whoever lives, at first; each twice as long, at most
LOCK_WAIT_S = 0.5  # who comes next, for an owner that is dying or a watchdog that settles what one left
LOCKED_S = 5.0  # who follows a killed manager or helper, for its watchdog to let go of its devices
OTHERS_DONE_S = 3.0  # who reads what became of limits whose owner is gone, for its watchdog to have put them back
TRY_AGAIN_S = 0.1  # between tries of all who wait for another one's end

# A controller waits for its watchdog.
READY_S = 10.0  # to start; no cap is set before
MUTE_WATCHDOG_S = 0.5  # without an answer, it is replaced where it is seen to be stopped
STUCK_S, STUCK_BEATS = 5.0, 8  # it does not watch, where so many beats wait for so long: of fewer, we got no CPU
OBEYS_S = 2.0  # to leave after a goodbye, or to guard again after it has put limits back

# The helper waits for its clients.
HELPER_BEAT_S = 0.7  # between its beats to a watchdog at the latest; most come with the client's, twice a second
POLICY_S, RECHECK_S = 2.0, 10.0  # between looks whether caps are allowed still; whether the devices are
LEASES_END_S = 5.0  # for leases that root ends to be over
SERVICE_END_S, SETTLE_AGAIN_S = 30.0, 30.0  # at its end, for all limits to be back; before it tries what failed again

# Clients wait for the helper or for a budget's manager, and a helper for the process that forks its watchdogs.
ANSWER_WITHIN_S = 5.0  # also for one that is only started by our asking, or sets many devices one after the other
LEND_WITHIN_S = 15.0  # it starts a watchdog first
ASKED_WITHIN_S = 3.0  # by a helper that was there a moment ago; meanwhile no signal is passed on
SET_WITHIN_S = 10.0  # a limit, by a driver that takes its time; signals are passed on meanwhile
ENDED_WITHIN_S = 10.0  # while it waits for leases to be over
SOON_S = 0.02  # in which a beat is answered by one that is well
WAS_STOPPED_S, LATER_S = 1.0, 0.5  # who slept so long was perhaps stopped, and waits so long for what happened
MUTE_S = 0.5  # a beat that waits so long may wait for ever: the limits are read, whether a watchdog put them back

# A supervisor waits for a budget's manager, and a budget for whoever sets its caps.
SUPERVISOR_LOOK_S, STOPPED_LOOKS = 0.25, 2  # found stopped at so many looks it is killed, and followed
LEASE_S = 3.0  # after which one that was not heard of has lowered its caps by itself
ORDER_AGAIN_S = 1.0  # an order that nobody has confirmed is given again

# A job's controller and a site wait for their nodes.
WORD_S, OFTEN_WORD_S = 0.4, 0.2  # between two words; while samples are taken often, as what is late is decided late
NODE_SILENT_S = 1.0  # a node that says nothing for so long makes a gap, and has no part in what is shared anew
STALLED_S, LOST_S = 2.0, 60.0  # it puts its limits back by itself, so that the others are to; is given up
BEGINNING_S = 10.0  # is given up before the first sample: all agents begin at once, and nothing is set
AWAY_S = 0.9  # who has not looked for so long does not know who was silent
DEED_AGAIN_S, DEED_WITHIN_S = 0.25, 2.0  # a deed that is not done is asked for again; is given up
JOB_GONE_S, JOB_ENDING_S = 1.0, 3.0  # of a job that has ended on a node; between its end on the first and the last
SETTLED_WITHIN_S = 4.0  # for new agents to say what became of the limits of those that are gone

# A node's agent waits for the controller, and whoever ends agents for them.
HOLDS_S = 2.4  # since it said what is known to be heard: words that are late by a second and a half put nothing back
ALONE_S = 6.0  # without a word it leaves; so does Ray's actor that nobody calls, which ends its agent's input
SUSPENDED_S = 5.0  # Slurm stops what it suspends 2 s after it has said so
WITH_US_S, LAST_WORDS_S = 0.5, 1.0  # for a job that is told to end with us; for what is said last to be read
AT_LATEST_S = 2.0  # to have left once it is to, whatever is waited for: a helper, or a driver that hangs
LEAVES_S, TERM_S = 3.0, 1.0  # for agents to put back and leave, once their input has ended; after each signal then

# Ray's relay and actors.
RAY_WAIT_S = 2.0  # between two calls of an actor that is not needed yet
RAY_ANSWER_S = 0.25  # for the agent to answer; what comes later is given at the next call
RAY_OTHERS_S, RAY_BEYOND_S = 0.6, 0.15  # for another node to; for those beyond it as well
RAY_LATE_S = 1.2  # of a call, which takes 0.75 s where another node of its group does not answer
RAYLET_LOOK_S, RAYLET_TOLD_S = 0.3, 1.0  # between looks at the raylet; for a call to come that is told why we end
HEAD_EVERY_S, HEAD_ANSWERS_S = 0.5, 1.5  # between two questions to the head; calls go on without it for a minute

# A site and the nodes of its budget.
PART_HOLDS_S = 2.0  # for which a node has its part, since the last answer that it knows to be heard
SITE_GONE_S = 15.0  # a node that has heard nothing for so long puts the limits found back, and leaves
LINE_STUCK_S, REOPEN_S = 10.0, 2.0  # without a word of any node of a line it is given up; until another is opened
REPLACED_S = 6.0  # for the manager of an earlier site to leave, whose part may hold so long
SITE_ENDS_S = 10.0  # at a budget's end, for all nodes to put back
NOBODY_S = 120.0  # without any node a budget ends

# What has to hold, and why.
BOUNDS = (
    ("BEAT_APART_S < BEAT_S < 0.5", "a guardian is told at least every half second"),
    ("3 * BEAT_S < HANG_S", "two beats may be late"),
    ("BEAT_S + LATER_S < HANG_S", "a beat that waits for what happened is not silence"),
    ("BEAT_S + SOON_S < WAS_STOPPED_S < HANG_S", "whose limits were put back asks, and who was well does not wait"),
    ("HELPER_BEAT_S < HANG_S", "also where its client says nothing"),
    ("HANG_S + ASKING_S < STOPPED_BACK_S", "a driver may ignore a limit as often as it is asked for"),
    ("HANG_S + WOKE_LATE_S < STOPPED_BACK_S", "a watchdog may wake up late"),
    ("HANG_S + PASS_AGAIN_S < STOPPED_BACK_S", "or be patient once"),
    ("HANG_S + STARVED_LOOK_S < STOPPED_BACK_S", "or find that one which had no CPU is stopped since"),
    ("SPENT_S < HANG_S < STOPPED_BACK_S < STARVED_S", "who computes without an end has spent it; others queue"),
    ("DYING_S + LEAKED_S + ASKING_S < KILLED_BACK_S", "a lock that a child inherited delays nothing beyond it"),
    ("DYING_S < LEAKED_S < EAGER_S", "the dead are told from those that forked"),
    ("KILLED_BACK_S <= EAGER_S < LINGERS_S < REFUSED_FOR_S", "each pass is eager for as long as it is promised"),
    ("HANG_S < LINGERS_S", "an owner that lives is found hung before it is left alone"),
    ("DYING_S < LOCK_WAIT_S and ASKING_S < LOCK_WAIT_S", "who comes next waits for a set that is under way"),
    ("ASKING_S < DRIVER_S < STOPPED_BACK_S", "a signal is passed on soon, whatever a driver does"),
    ("DRIVER_S < DRIVER_AT_END_S < SERVICE_END_S", "the service waits for longer than a lease's end"),
    ("PASS_AGAIN_S <= PUT_BACK_AGAIN_S < STOPPED_BACK_S", "what failed is tried again before others give up"),
    ("PUT_BACK_AGAIN_S < SETTLE_AGAIN_S <= PUT_BACK_SELDOM_S <= REFUSED_FOR_S", "and never less often than that"),
    ("STOPPED_BACK_S < OTHERS_DONE_S < LOCKED_S", "a watchdog is done before it is read what it did, or followed"),
    ("TRY_AGAIN_S < LOCK_WAIT_S", "who waits tries more than once"),
    ("STUCK_BEATS * BEAT_S < STUCK_S", "beats that are on time are as many before a watchdog counts as stuck"),
    ("2 * HELPER_BEAT_S + MUTE_WATCHDOG_S < STOPPED_BACK_S", "a stopped watchdog is replaced, also by the helper"),
    ("BEAT_S < MUTE_WATCHDOG_S < STUCK_S", "it may be late with an answer"),
    ("OBEYS_S < STUCK_S and ASKING_S < OBEYS_S", "it may be asking a device just then"),
    ("LOCK_WAIT_S + READY_S < LEND_WITHIN_S", "lending waits for a lock, then for a watchdog"),
    ("8 * ASKING_S < ASKED_WITHIN_S < ANSWER_WITHIN_S", "a set of eight GPUs is one answer"),
    ("ASKED_WITHIN_S < SET_WITHIN_S < LEND_WITHIN_S", "a driver takes longer than a helper"),
    ("SOON_S < MUTE_S < HANG_S", "a helper that hangs is found before it counts as lost"),
    ("HELPER_BEAT_S + ASKED_WITHIN_S < LEASES_END_S < ENDED_WITHIN_S", "a lease ends at its next beat, after a set"),
    ("POLICY_S + ASKING_S < POLICY_BACK_S", "a policy is looked at, then heeded"),
    ("POLICY_S < RECHECK_S", "looking at all processes of a device costs more"),
    ("LEASES_END_S < SERVICE_END_S", "the service waits for longer than a lease"),
    ("SUPERVISOR_LOOK_S * STOPPED_LOOKS < HANG_S", "a stopped manager is followed before its budget is unheld"),
    ("PART_HOLDS_S + 1.0 <= LEASE_S", "who is silent gets a second to lower its caps"),
    ("ORDER_AGAIN_S < LEASE_S and HANG_S < LEASE_S", "an order is given again before its tuner is given up"),
    ("OFTEN_WORD_S < WORD_S and 2 * WORD_S < NODE_SILENT_S", "a word may be lost"),
    ("2 * BEAT_S < AWAY_S < NODE_SILENT_S < STALLED_S < LOST_S", "who looked in time knows who was silent"),
    ("STALLED_S + WORD_S <= HOLDS_S", "the others are told when the silent node puts back, not after"),
    ("4 * DEED_AGAIN_S < DEED_WITHIN_S <= STALLED_S", "a deed is asked for again, and its answer no stall"),
    ("ASKING_S < DEED_WITHIN_S and 8 * ASKING_S < BEGINNING_S", "an agent's devices may ignore it"),
    ("NODE_SILENT_S + JOB_GONE_S < JOB_ENDING_S", "a job's end on one node is seen on all"),
    ("STARVED_LOOK_S + OTHERS_DONE_S < SETTLED_WITHIN_S", "a new agent waits for the old one's watchdog"),
    ("WAS_STOPPED_S < HOLDS_S < SUSPENDED_S < ALONE_S", "limits are back before an agent leaves"),
    ("2 < SUSPENDED_S", "Slurm's own two seconds"),
    ("WITH_US_S + LAST_WORDS_S < AT_LATEST_S < LEAVES_S", "an agent has said all before it is ended"),
    ("ALONE_S + AT_LATEST_S < NODE_CLEAR_S", "also where a call does not come back"),
    ("0 < TERM_S < LEAVES_S", "who does not leave by itself is ended sooner"),
    ("2 * RAY_WAIT_S < ALONE_S", "a call of an actor may be lost"),
    ("RAY_ANSWER_S < RAY_OTHERS_S < RAY_OTHERS_S + RAY_BEYOND_S < NODE_SILENT_S", "a node keeps no other one silent"),
    ("RAY_OTHERS_S + RAY_BEYOND_S < RAY_LATE_S < STALLED_S", "a late call is called alone before it stalls"),
    ("RAYLET_LOOK_S + RAYLET_TOLD_S < HOLDS_S and WORD_S < RAYLET_TOLD_S", "the next word is told why"),
    ("HEAD_EVERY_S + HEAD_ANSWERS_S < HOLDS_S", "agents are ended before their limits lapse"),
    ("2 * WORD_S < NODE_SILENT_S < PART_HOLDS_S < LEASE_S < SITE_GONE_S", "its part lapses here before it does there"),
    ("LINE_STUCK_S + REOPEN_S < SITE_GONE_S < NOBODY_S", "another line comes before a node leaves"),
    ("PART_HOLDS_S + LEAVES_S < REPLACED_S", "an earlier site's part has lapsed, and its end left"),
    ("LEAVES_S + TERM_S < SITE_ENDS_S", "all lines are heard out"),
)
