/*
 * Attacks in Python on what a seccomp program and limits have to hold where a program runs as the user of
 * its runner: used by the probe that decides whether a tier is offered, and by the table of attacks.
 * Each is the body of a program that gets `input` and leaves in `result` a list of what it got.
 */

/** What these attacks are given. */
export interface UserAttackAim {
  /** The process that runs the sandbox. */
  runner: number;
  /** The namespaces of the runner, as links in `/proc` show them. */
  pidNamespace: string;
  userNamespace: string;
  networkNamespace: string;
  /** A directory of the runner's user, outside, with the file `own.txt` in it and the link `own.link` to it. */
  outside: string;
  /** An abstract name that is not taken. */
  freeName: string;
}

const prelude = `
import ctypes, errno, fcntl, mmap, os, platform, resource, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
X64 = platform.machine() == "x86_64"
# What a machine without room answers says nothing about who may do what.
wants = (errno.EAGAIN, errno.ENOMEM, errno.EINTR, errno.EMFILE, errno.ENFILE)
def call(numbers, *args):
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    answer = libc.syscall(ctypes.c_long(numbers[0 if X64 else 1]), *given)
    if answer == -1: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
result, unclear = [], []
def attempt(name, work):
    try:
        if work() is not False: result.append(name)
    except MemoryError: unclear.append(name)
    except OSError as error:
        if error.errno in wants: unclear.append(name)
    except BaseException as error: pass
others = {"the runner": input["runner"], "its parent": os.getppid()}
if os.getppid() == 0: del others["its parent"]
def namespace(kind):
    try: return os.readlink("/proc/self/ns/" + kind)
    except OSError: return None
# In a namespace of processes a number of the host means nothing, or a process inside.
if namespace("pid") not in (None, input["pidNamespace"]) and os.path.exists("/proc/%d" % input["runner"]): del others["the runner"]
has_own_users = namespace("user") not in (None, input["userNamespace"])
has_own_network = namespace("net") not in (None, input["networkNamespace"])
own, link = input["outside"] + "/own.txt", input["outside"] + "/own.link"
`;

const judgement = `
if unclear and not result: raise RuntimeError("neither refused nor possible: " + ", ".join(unclear))`;

/** Kills or blinds by limits: the runner by CPU time, the supervisor by descriptors, so that a daemon lives on. */
const limits = `
for name, pid in others.items():
    attempt("descriptors of " + name, lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))
    attempt("CPU time of " + name, lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))
news, end = os.pipe()
if os.fork() == 0:
    try:
        os.setsid()
        if os.fork() == 0: os.execv("/bin/sleep", ["sleep", "60"])
    except BaseException: os.write(end, b"x")
    os._exit(0)
os.close(end)
os.wait()
# Its end of the pipe closes as it becomes another program.
if os.read(news, 1) != b"": raise RuntimeError("no daemon was made")`;

const scheduling = `
for name, pid in others.items():
    attempt("affinity of " + name, lambda: os.sched_setaffinity(pid, {0}))
    attempt("policy of " + name, lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))
    attempt("parameters of " + name, lambda: os.sched_setparam(pid, os.sched_param(0)))
    attempt("priority of " + name, lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt("priority of the group of " + name, lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19))
    attempt("disk priority of " + name, lambda: call((251, 30), 1, pid, 3 << 13) == 0)
if os.getuid() != 0:
    # In a namespace of users all of this user are those inside.
    attempt("priority of all of its user", lambda: not has_own_users and os.setpriority(os.PRIO_USER, 0, 19))
`;

const fileFacts = `
attempt("the mode of a file", lambda: os.chmod(own, 0o777))
attempt("the times of a file", lambda: os.utime(own, (1, 1)))
attempt("an attribute of a file", lambda: os.setxattr(own, "user.attack", b"x"))
attempt("the owner of a file", lambda: os.chown(own, os.getuid(), -1))
attempt("the facts of a file", lambda: os.stat(own))
attempt("the facts of a link", lambda: os.lstat(link))
attempt("the target of a link", lambda: os.readlink(link))
attempt("the rights to a file", lambda: os.access(own, os.F_OK))
attempt("the attributes of a file", lambda: os.listxattr(own))
attempt("a descriptor of a path", lambda: os.open(own, os.O_PATH))
attempt("a file from within its directory", lambda: (os.chdir(input["outside"]), os.stat("own.txt")))
attempt("a directory that was entered", lambda: (os.chdir(input["outside"]), call((262, 79), -100, b"", ctypes.create_string_buffer(256), 0x1000) == 0)[1])
os.chdir(os.environ["HOME"])
os.symlink(own, "out")
attempt("a file through a link", lambda: os.stat("out"))
attempt("the mode of a file through a link", lambda: os.chmod("out", 0o777))
attempt("the mode of a file through a descriptor", lambda: os.fchmod(os.open(sys.argv[0], os.O_RDONLY), 0o755))
attempt("the times of a file through a descriptor", lambda: os.utime(os.open(sys.argv[0], os.O_RDONLY), (1, 1)))
attempt("news of a directory", lambda: call((254, 27), call((294, 26), 0), input["outside"].encode(), 0xfff) >= 0)
attempt("news of its directory", lambda: fcntl.fcntl(os.open("/usr/lib", os.O_RDONLY), 1026, 1) == 0)`;

const kernelTables = `
slot = ctypes.c_ulong(0)
attempt("a namespace of users", lambda: call((272, 97), 0x10000000) == 0)
attempt("requests of asynchronous input", lambda: call((206, 0), 1000, ctypes.byref(slot)) == 0)
attempt("io_uring", lambda: call((425, 425), 8, ctypes.create_string_buffer(256)) >= 0)
attempt("a watcher of files", lambda: call((294, 26), 0) >= 0)
attempt("a group of notices", lambda: call((300, 262), 0, 0) >= 0)
attempt("locked memory", lambda: libc.mlock(ctypes.create_string_buffer(32 << 20), 32 << 20) == 0)`;

const signals = `
for name, pid in others.items():
    attempt("a signal to " + name, lambda: os.kill(pid, 0))
    attempt("a signal to a thread of " + name, lambda: call((234, 131), pid, pid, 0) == 0)
    attempt("a signal by descriptor to " + name, lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))
    info = ctypes.create_string_buffer(struct.pack("iii", 0, 0, -1), 128)
    attempt("a queued signal to " + name, lambda: call((129, 138), pid, 0, info) == 0)
    attempt("a signal of a pipe to " + name, lambda: fcntl.fcntl(os.pipe()[0], 8, pid) == 0)`;

const memories = `
block = ctypes.create_string_buffer(8)
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
here, there = Part(ctypes.addressof(block), 8), Part(ctypes.addressof(block), 8)
for name, pid in others.items():
    attempt("the memory of " + name, lambda: os.open("/proc/%d/mem" % pid, os.O_RDWR))
    attempt("the environment of " + name, lambda: open("/proc/%d/environ" % pid).read())
    attempt("a copy out of " + name, lambda: call((310, 270), pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) >= 0)
    attempt("a copy into " + name, lambda: call((311, 271), pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) >= 0)
    attempt("control of " + name, lambda: call((101, 117), 16, pid, 0, 0) == 0)
    attempt("a descriptor of " + name, lambda: call((438, 438), os.pidfd_open(pid), 0, 0) >= 0)
def write_shared():
    file = os.open(sys.argv[0], os.O_RDONLY)
    part = mmap.mmap(file, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    first = part[:1]
    at = [line for line in open("/proc/self/maps") if sys.argv[0] in line][0].split("-")[0]
    memory = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(memory, first, int(at, 16))
attempt("a file that is only for reading, through its own memory", write_shared)`;

const abstractNames = `
holder = socket.socketpair()[0]
# In a network of its own any name is free.
attempt("an abstract name", lambda: not has_own_network and holder.bind("\\0" + input["freeName"]))
attempt("an abstract listener", lambda: not has_own_network and socket.socket(socket.AF_UNIX).bind("\\0" + input["freeName"] + "-2"))`;

const coreDump = `
child = os.fork()
if child == 0:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(0)
os.waitpid(child, 0)
result += ["a dump of %d bytes" % os.stat(name).st_size for name in os.listdir(".") if name.startswith("core")]`;

const bodies = {
  limits,
  scheduling,
  fileFacts,
  kernelTables,
  signals,
  memories,
  abstractNames,
  coreDump,
};
export type UserAttack = keyof typeof bodies;

/** The programs; each takes well under a second. */
export const userAttacks = Object.fromEntries(
  Object.entries(bodies).map(([name, body]) => [name, prelude + body + judgement]),
) as Record<UserAttack, string>; // the keys of the object above

/** All of them in one program. */
export const allUserAttacks = prelude + Object.values(bodies).join("\n") + judgement;

/** Leaves in `result` how many files were made in each directory that could be written. */
export const manyFiles = `
import os, uuid
result, name = {}, uuid.uuid4().hex
for place in (".", "/tmp", "/dev/shm", "/var/tmp"):
    made = 0
    try:
        while made < input["most"]:
            os.close(os.open("%s/%s-%d" % (place, name, made), os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError: pass
    result[place] = made
    for number in range(0 if place == "." else made): os.unlink("%s/%s-%d" % (place, name, number))`;

// Each prints how many megabytes it has in all, in lines such as `128 MB`, whenever that is more than before. It ends
// when each of its children has all that it wants, was refused more or was killed, and leaves the words for that in
// `result`; or as soon as all have more than `enoughMb` of the input. What it has it keeps until its own end.
const family = (children: number, take: string): string => `
import errno, os, signal, socket, time
def take(say):
${take}
kept, enough = [], (input or {}).get("enoughMb", 1 << 30)
def taking(report):
    """Takes what it can get; says why it was no more."""
    try:
        kept.append(take(lambda mb: os.pwrite(report, b"%8d" % mb, 0)))
        return "all"
    except BaseException as error:
        kept.append(error) # and with it what was taken
        return errno.errorcode.get(error.errno, "?") if isinstance(error, OSError) else type(error).__name__
reports = [os.open("report-%d" % child, os.O_CREAT | os.O_RDWR) for child in range(${children})]
children = {}
for report in reports:
    try: pid = os.fork()
    except OSError as error: raise RuntimeError("a process could not be made (%d)" % error.errno)
    if pid == 0:
        os.pwrite(report, taking(report).encode(), 8)
        while True: signal.pause()
    children[pid] = report
ends, most = {}, -1
while len(ends) < ${children} and most <= enough:
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0: break
        # What it had is free again.
        report = children[pid]
        os.pwrite(report, b"%8d" % 0, 0)
        ends[report] = "killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else "ended"
        if len(ends) >= ${children}: break
    told = {report: os.pread(report, 40, 0).decode() for report in reports}
    for report, words in told.items():
        if len(words) > 8: ends.setdefault(report, words[8:])
    sum_mb = sum(int(words[:8].strip("\\0 ") or 0) for words in told.values())
    if sum_mb > most:
        most = sum_mb
        print(most, "MB", flush=True)
    time.sleep(0.005)
result = sorted(set(ends.values()))`;

// Each process stays below the limit that it has for itself.
const together = family(
  20,
  `
    part = bytearray(30 << 20)
    for page in range(0, len(part), 4096):
        part[page] = 1
        if page % (1 << 20) == 0: say(page >> 20)
    return part`,
);

const channels = family(
  20,
  `
    block, pairs, taken = b"x" * 65536, [], 0
    for _ in range(110):
        pair = socket.socketpair()
        pairs.append(pair)
        for one in pair:
            one.setblocking(False)
            try: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            except OSError: pass
            try:
                while True: taken += one.send(block)
            except BlockingIOError: pass
        say(taken >> 20)
    return pairs`,
);

// As many addresses as one process may have, of which one in each two megabytes is looked at.
const pageTables = family(
  8,
  `
    import mmap
    size, part = 1 << 40, None
    while part is None:
        try: part = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
        except OSError:
            size -= size >> 3
            if size < 1 << 24: raise
    for count in range(1, min(size >> 21, 25601)):
        part[count << 21]
        if count % 256 == 0: say(count >> 8)
    return part`,
);

// In files that are in no directory, and are mapped by no process.
const memoryFiles = family(
  1,
  `
    block, files, taken = b"x" * (4 << 20), [], 0
    for _ in range(100):
        file = os.memfd_create("part")
        files.append(file)
        taken += os.write(file, block) >> 20
        say(taken)
    return files`,
);

/** Ways to memory that a limit on each process does not see. */
export const memoryAttacks = { together, channels, pageTables, memoryFiles } as const;

/** How a child of these attacks ends where something holds it, or when it has all it wants. */
export const memoryEnds: ReadonlySet<string> = new Set(
  "all killed MemoryError ENOMEM ENOBUFS ENOSPC EMFILE ENFILE EPERM EACCES ENOSYS".split(" "),
);
