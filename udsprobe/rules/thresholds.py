"""Every number that decides a verdict, and why it is that number.

Shares are parts of 1 unless the name says otherwise.
"""

# -- pressure -------------------------------------------------------------------------
# Where service time grows without bound: at 80 % use a queue of random arrivals is four
# requests long, at 90 % nine (M/M/1).
THREAD_BUSY_MIN = 0.8
# A loop goes through its poller some times for a request: to read it, for each answer that it
# waits for, to write. One that does so more often has work of its own, or does not sleep.
POLLS_PER_REQUEST_MIN = 10
# Asked so often for one request, one answer after the other, asking once would save half of them.
ASKS_PER_REQUEST_MIN = 2
# So often it is a loop over rows, and no handful of different questions.
ASKS_IN_LOOP_MIN = 10
# Waits are pressure when they are most of the request …
WAIT_SHARE_MIN = 0.5
# … and a human or a proxy's timeout could notice: scheduling and wake-ups alone take
# tens of microseconds on a healthy host.
WAIT_MEAN_US_MIN = 1_000.0
# What others' use of the CPUs takes is nothing that a service is made of: a quarter of each
# request is enough …
CONTENTION_SHARE_MIN = 0.25
# … and three times what waking up may take …
CONTENTION_US_MIN = 300.0
# … where its threads wait as much of the CPU time they need, and it is not one stall (of a
# hypervisor, say) that a burst of requests stood behind.
KEPT_FROM_CPU_MIN = 0.25
# Of a wait for another target, what that one's own requests have to take to be its reason.
ACCOUNTED_FOR_MIN = 0.5
# A loop that now and then stops for this long makes others wait that had nothing to do with it.
STALL_US_MIN = 10_000.0
# "Far above the median" …
TAIL_TIMES_MEDIAN = 10.0
# … and longer than the scheduler's own slices (3 ms on Linux 6.x) make it.
TAIL_US_MIN = 4_000.0
# … is what a service suffers from when it is half of the time of all requests: any proxy has a
# few slow ones now and then.
TAIL_MEAN_TIMES_MEDIAN = 2.0

# CPUs in socket and poller calls from which on moving bytes is what a service does: of all its
# threads, of which each has little where they are more than the CPUs.
MOVING_CPUS_MIN = 0.4
# Requests that are read that many times later than their own work takes stand in a queue as long
# as one at 80 % use, 0.8 / (1 - 0.8): bursts can leave the thread idle in between …
QUEUED_TIMES_WORK = 4.0
# … but for less of the time than it works.
QUEUED_BUSY_MIN = 0.5
# A few requests that take that many times the median are what stalls the rest.
STALL_TIMES_MEDIAN = 5.0

# Of the window, that a server stands still at a time: so many of those wait who come at any moment,
# and not when they have their last reply.
STANDSTILL_SHARE_MIN = 0.01
# Of what they took, between the replies of requests that waited for one moment.
TOGETHER_SHARE_MAX = 0.1

# Requests that wait for a thread at any moment, before threads that have no time left: with fewer,
# one client asks again as soon as it has its reply.
WAITING_MIN = 1.0

# Of the time of a worker's requests, before it reads them: half where two clients are bound to it,
# next to none where it is one client's session.
BOUND_QUEUE_SHARE_MIN = 0.25

# What poll() spends on each descriptor, some tenths of a microsecond, is for so many as much as
# going to sleep and waking up takes.
MANY_DESCRIPTORS_MIN = 100

# -- how much has to be seen ------------------------------------------------------------
# Below this a mean says little: its standard error is a quarter of the spread.
REQUESTS_MIN = 20
# A share of so many samples of stacks is off by 20 % at most in two of three windows.
CODE_SAMPLES_MIN = 20
# A function with less of the samples is not what a program's CPU time goes to.
CODE_LARGE_SHARE_MIN = 0.25
# A kind of code that has most of a process's CPU time is what its remedies are for.
CODE_KIND_SHARE_MIN = 0.5
# A wait as long as this is worth a word after fewer.
SLOW_REQUESTS_MIN = 5
# "Slow" for that purpose.
SLOW_REQUEST_US = 100_000.0
# So much of the waits in a poller ends with another client's message, before replies are said to
# wait for that: less can be chance.
OTHERS_SHARE_MIN = 0.9
# Calls on sockets without a single turn: traffic that is not request and response.
STREAM_CALLS_MIN = 1_000
# A thread that lived for less of the window has no share worth comparing.
THREAD_LIFE_MIN = 0.5
# A thread of a pool that wakes its loop through a socket pair spends less on sockets.
SOCKET_SHARE_MIN = 0.01
# Of the socket time of the thread that has most of it: less is no thread that serves.
SERVING_PART_MIN = 0.05
# Requests that overlap make the sum of their times longer than the threads were there.
ONE_AT_A_TIME_MAX = 1.05
# Waking a thread on an idle CPU takes 5 to 50 µs, in a virtual machine up to 100.
WAKE_UP_US_MAX = 100.0

# All of a window, but for the moments at its edges.
ALL_THE_TIME_MIN = 0.99
# A request that nobody begins with or answers for this long, where nothing else completes.
HUNG_US_MIN = 1_000_000.0

# Of all requests of the window, answered or not, those that are stuck: fewer wait for something of
# their own, such as a report that takes long.
STUCK_SHARE_MIN = 0.01

# -- tracers ------------------------------------------------------------------------------
# Of a traced thread's time: a debugger that lets it run takes none, strace a third at the least.
TRACED_SHARE_MIN = 0.1

# -- processes that end ---------------------------------------------------------------------
# What starts in the place of one takes a second or more: a tenth of a worker is missing always.
EXITS_PER_S_MIN = 0.1
# What the remedy asks for: to start a process is worth some hundred requests, and a small part of
# what one does that has served a thousand connections.
RECYCLED_CONNECTIONS_MAX = 1_000

# -- accept queue -------------------------------------------------------------------------
# Blocked connects that are a hiccup: one in a hundred, or shorter than a request may wait.
BLOCKED_CONNECTS_SHARE_MIN = 0.01
# Queued this long on average is not a burst that is being worked off.
ACCEPT_WAIT_US_MIN = 10_000.0
# A burst is worked off one after the other; waiting longer than that has another reason.
ACCEPT_WAIT_TIMES_SERVICE = 3.0
# The queue is that full at the median arrival: more arrives than is taken, not a burst.
QUEUE_OVERLOAD_DEPTH = 0.5

# -- connects -------------------------------------------------------------------------------
# One refused connect is a restart; a third is a pattern.
FAILED_CONNECTS_MIN = 3
# Of all connects to that address.
FAILED_CONNECTS_SHARE_MIN = 0.01

# -- clients that give up -------------------------------------------------------------------
# One client that leaves is a user who went on; a third is a pattern.
GIVEN_UP_MIN = 3
# Of the requests that end, answered or not.
GIVEN_UP_SHARE_MIN = 0.01
# Replies that say that the server failed, against the others, on average: a wait that ends with a
# time limit is longer than one that does not.
FAILS_LATE_TIMES = 2.0
# A request that meets the end of a connection, which the other end closed while it was idle, has
# waited for no reply: on one host that is told within a millisecond.
KEPT_TOO_LONG_US_MAX = 1_000.0
# Of the requests that an upstream drops: the others are few.
KEPT_TOO_LONG_SHARE_MIN = 0.9

# Connects to a name server. A program that keeps what it has looked up makes few.
LOOKUPS_PER_REQUEST_MIN = 0.5

# -- file descriptors ---------------------------------------------------------------------
# Under a tenth of the descriptors left.
FD_USE_MIN = 0.9
# Running out later than in an hour is no incident yet.
FD_FULL_WITHIN_S = 3_600.0

# -- send buffers ---------------------------------------------------------------------------
# A reader that needs this long for one buffer does not keep up; on one host a buffer
# (200 KiB) is read in under a millisecond.
BUFFER_DRAIN_S_MIN = 0.1
# A sender that waits is woken at a quarter of a Unix buffer (unix_writable() in
# net/unix/af_unix.c): a queue that stops one stays above.
BUFFER_FILL_MIN = 0.25
# The same at two thirds of TCP's (sk_stream_is_writeable()), which counts more than the bytes.
TCP_BUFFER_FILL_MIN = 0.5
# What a program gets that leaves SO_SNDBUF out (SK_WMEM_DEFAULT in net/core/sock.c).
SEND_BUFFER_DEFAULT_BYTES = 212_992
# One packet of the loopback device: TCP queues one, however small the buffer is.
LOOPBACK_SEGMENT_BYTES = 65_483
# A sender that may queue one packet only waits for its acknowledgement (TCP_DELACK_MIN).
DELAYED_ACK_US = 40_000.0
# Sends that Nagle's algorithm keeps back, to requests: below it is now and then.
HELD_SENDS_SHARE_MIN = 0.1
# What they wait is nothing that a service is made of: a quarter of each request is enough.
HELD_TIME_SHARE_MIN = 0.25
# Part of the window in which the threads that send to it slept.
SEND_BLOCKED_SHARE_MIN = 0.2
# Of the time in which a sender was stopped: a reader that sleeps for most of it lets bytes lie; one
# that copies is busy all of it but for waking up.
READER_ASLEEP_SHARE_MIN = 0.5

# -- connection churn -------------------------------------------------------------------------
# Well-kept connections carry hundreds of requests; ten and fewer are a setting.
ACCEPTS_PER_REQUEST_MIN = 0.1
# Setting up and tearing down costs some 100 µs of CPU in all: below this rate under 2 % of one.
CHURN_CONNECTIONS_PER_S_MIN = 200.0
# Part of the service's CPU time in the system calls that connections need; setting up what the
# program keeps for each costs as much again.
CHURN_CPU_SHARE_MIN = 0.05
# A server that forks for each connection: fork, start and exit take a millisecond and more; a
# tenth of a CPU is a hundred of them a second.
CHURN_CPUS_MIN = 0.1
# Of the window: what a thread that is not listed any more was busy for at most.
UNLISTED_BUSY_MAX = 0.01

# -- CPU ----------------------------------------------------------------------------------------
# Of its periods a quota may cut that many short before it matters.
THROTTLED_PERIODS_PCT_MIN = 5.0
# Of the waits for a CPU: who held it for less of them is one of several, and not who holds it.
HOLDER_SHARE_MIN = 0.5
# CPUs that targets may not use and that are idle for so much of the time would take their waits.
IDLE_ELSEWHERE_PCT_MIN = 50.0
# Runnable threads for each CPU from which on they are too many: below, it is plain demand.
RUNNABLE_PER_CPU_MAX = 4.0

# -- authors of waits ---------------------------------------------------------------------------
# Who ended less of the waits is one of several, and not whom they are for.
AUTHOR_SHARE_MIN = 0.5
# Of the time that goroutines waited for a lock, it was held there.
LOCK_HOLDER_SHARE_MIN = 0.5
# What authors did speaks for all of these waits when it is known of a quarter: timers end
# waits for an interpreter's lock that becomes free while who waits is looking.
AUTHOR_KNOWN_MIN = 0.25
# A thread that waited longer than its requests did also waited for work, which is not their wait.
WAITED_TIMES_REQUESTS_MAX = 1.5

# -- runners-up --------------------------------------------------------------------------------
# Below this a cause is noise, not a runner-up.
RUNNER_UP_SHARE_PCT_MIN = 5.0

# -- near a limit --------------------------------------------------------------------------------
# Windows of 10 s of a steady load differ by a few per cent: within this part of a limit, a
# verdict that was given holds, and none is sure.
NEAR_LIMIT = 0.1
