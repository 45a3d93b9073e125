import { allowedCalls, type Architecture, type SystemCall } from "./system-call.ts";

/** The name of the file of a program. */
export function filterName({ sockets, isMemoryCounted, seesHost }: SeccompOptions): string {
  return [sockets, isMemoryCounted ? "counted" : "uncounted", seesHost ? "host" : "own"].join("-");
}

export function questionsName({ files, tasks, sockets }: NotifyOptions): string {
  return ["ask", files && "files", tasks && "tasks", sockets && "sockets"]
    .filter((word) => word !== false)
    .join("-");
}

/** All programs that a tier may need, by their names. */
export function filterFiles(architecture: Architecture): Record<string, Buffer> {
  const files: Record<string, Buffer> = {};
  for (const first of [false, true]) {
    for (const second of [false, true]) {
      for (const third of [false, true]) {
        const options = {
          sockets: first ? "none" : "loopback",
          isMemoryCounted: second,
          seesHost: third,
        } as const;
        files[filterName(options)] = seccompProgram(architecture, options);
        const questions = { files: first, tasks: second, sockets: third };
        files[questionsName(questions)] = notifyProgram(architecture, questions);
      }
    }
  }
  return files;
}

export interface SeccompOptions {
  /** `loopback`: unix and internet sockets, harmless in a network namespace of its own. `none`: pairs of sockets only. */
  sockets: "none" | "loopback";
  /** Whether a control group counts memory. Otherwise the ways to memory that no process shows are closed. */
  isMemoryCounted: boolean;
  /** Whether the program sees the host's own files, so that its calls must not reach what Landlock does not cover. */
  seesHost: boolean;
}

/** One instruction of a classic BPF program: operation, jumps if true and if false, operand. */
type Instruction = readonly [operation: number, ifTrue: number, ifFalse: number, operand: number];

const load = 0x20;
const jumpIfEqual = 0x15;
const jumpIfAtLeast = 0x35;
const jumpIfAnyBit = 0x45;
const and = 0x54;
const end = 0x06;

const allow = 0x7fff0000;
const notify = 0x7fc00000;
const killProcess = 0x80000000;
const refuse = (errno: number): number => 0x00050000 | errno;
/** The call is not made, but the program gets the answer of success. */
const pretend = refuse(0);
const notPermitted = refuse(1);
const notImplemented = refuse(38);
const notSupported = refuse(95);
const noSuchFamily = refuse(97);

// Offsets in struct seccomp_data; of an argument the lower half is enough for all that is looked at.
const loadNumber: Instruction = [load, 0, 0, 0];
const loadArchitecture: Instruction = [load, 0, 0, 4];
const loadArgument = (index: number): Instruction => [load, 0, 0, 16 + 8 * index];

const anyNamespace = 0x7e020080; // every CLONE_NEW*
const pushInput = 0x5412; // TIOCSTI
const consoleCommand = 0x541c; // TIOCLINUX
const sharedAnonymous = 0x21; // MAP_SHARED and MAP_ANONYMOUS
const socketFamilies = { unix: 1, internet: 2, internet6: 10 };
const pathOnly = 0x200000; // O_PATH
const creating = 0x400040; // O_CREAT and O_TMPFILE
const bufferOptions = [7, 8, 32, 33]; // SO_SNDBUF, SO_RCVBUF and the same by force
// F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: signals to others, and holds on files of others.
const refusedFileCommands = [8, 10, 15, 1024, 1026];
const setPipeSize = 1031;
const refusedProcessOptions = [35, 62]; // PR_SET_MM, PR_SCHED_CORE

const always = (answer: number): Instruction[] => [[end, 0, 0, answer]];

/** Answers what is loaded when it is one of the values; otherwise the instructions after it run. */
function ifOneOf(values: readonly number[], answer: number): Instruction[] {
  const jumps = values.map((value, at): Instruction => [
    jumpIfEqual,
    values.length - 1 - at,
    at + 1 === values.length ? 1 : 0,
    value,
  ]);
  return [...jumps, [end, 0, 0, answer]];
}

function unlessOneOf(values: readonly number[], answer: number): Instruction[] {
  const jumps = values.map((value, at): Instruction => [jumpIfEqual, values.length - at, 0, value]);
  return [...jumps, [end, 0, 0, answer]];
}

/** Allows the call only when each of the arguments is 0: the program itself, and no other. */
function onlyZero(indexes: readonly number[], answer = notPermitted): Instruction[] {
  return [
    ...indexes.flatMap((index): Instruction[] => [
      loadArgument(index),
      [jumpIfEqual, 1, 0, 0],
      [end, 0, 0, answer],
    ]),
    [end, 0, 0, allow],
  ];
}

function onlyIf(index: number, values: readonly number[], answer: number): Instruction[] {
  return [loadArgument(index), ...unlessOneOf(values, answer), [end, 0, 0, allow]];
}

function exceptIf(index: number, values: readonly number[], answer = notPermitted): Instruction[] {
  return [loadArgument(index), ...ifOneOf(values, answer), [end, 0, 0, allow]];
}

function exceptWithBits(index: number, bits: number, answer = notPermitted): Instruction[] {
  return [loadArgument(index), [jumpIfAnyBit, 0, 1, bits], [end, 0, 0, answer], [end, 0, 0, allow]];
}

type Rules = Partial<Record<SystemCall, Instruction[]>>;

function refusing(calls: readonly SystemCall[], answer: number): Rules {
  return Object.fromEntries(calls.map((call) => [call, always(answer)]));
}

// Limits and scheduling of its own only: with the number of another process these reach every process of the
// same user, the host's and the supervisor's among them.
const ownProcessOnly: Rules = {
  prlimit64: onlyZero([0]),
  get_robust_list: onlyZero([0]),
  sched_setaffinity: onlyZero([0]),
  // The C library asks for its own thread by number and takes "not implemented" for an answer.
  sched_getaffinity: onlyZero([0], notImplemented),
  // It asks for these by number, too: Node's locks write to stderr when they are refused. "Ordinary" is the answer for
  // every process, which tells nothing about it.
  sched_getscheduler: onlyZero([0], pretend),
  sched_getparam: onlyZero([0], pretend),
  sched_setscheduler: onlyZero([0]),
  sched_setparam: onlyZero([0]),
  sched_setattr: onlyZero([0]),
  sched_getattr: onlyZero([0]),
  sched_rr_get_interval: onlyZero([0]),
  // Who: 0 for a process (never all of a user), and of these the caller.
  setpriority: onlyZero([0, 1]),
  getpriority: onlyZero([0, 1]),
  ioprio_set: [loadArgument(0), ...unlessOneOf([1], notPermitted), ...onlyZero([1])],
  ioprio_get: [loadArgument(0), ...unlessOneOf([1], notPermitted), ...onlyZero([1])],
};

const systemV: readonly SystemCall[] = [
  ...(["shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop"] as const),
  ...(["msgget", "msgsnd", "msgrcv", "msgctl"] as const),
  ...([
    "mq_open",
    "mq_unlink",
    "mq_timedsend",
    "mq_timedreceive",
    "mq_notify",
    "mq_getsetattr",
  ] as const),
];

/** Memory that shows in no process: in the buffers of sockets and pipes, and behind descriptors. */
function uncountedMemoryRules(): Rules {
  return {
    memfd_create: always(notPermitted),
    mmap: [
      loadArgument(3),
      [and, 0, 0, sharedAnonymous],
      [jumpIfEqual, 0, 1, sharedAnonymous],
      [end, 0, 0, notPermitted],
      [end, 0, 0, allow],
    ],
    fcntl: exceptIf(1, [...refusedFileCommands, setPipeSize]),
    // What a program believes of the size of its buffers is no business of ours.
    setsockopt: [
      loadArgument(1),
      ...unlessOneOf([1], allow),
      ...exceptIf(2, bufferOptions, pretend),
    ],
  };
}

/** Landlock covers what opens and changes content; these look at, or change, what is about a file. */
function hostFileRules(): Rules {
  return {
    ...refusing(
      ["getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr"],
      notSupported,
    ),
    ...refusing(["chown", "fchown", "lchown", "fchownat"], notPermitted),
    // Its flags lie behind a pointer; the C library does not use it.
    openat2: always(notImplemented),
    // A descriptor for a path only is not checked by Landlock.
    open: exceptWithBits(1, pathOnly),
    openat: exceptWithBits(2, pathOnly),
  };
}

function rulesOf({ sockets, isMemoryCounted, seesHost }: SeccompOptions): Rules {
  const { unix, internet, internet6 } = socketFamilies;
  const isClosed = sockets === "none" || !isMemoryCounted;
  const noNetwork: Rules = {
    socket: always(noSuchFamily),
    ...refusing(["connect", "bind", "listen", "accept", "accept4"], notPermitted),
    // They could put descriptors on their way, where they are not counted.
    ...refusing(["sendmsg", "sendmmsg"], notPermitted),
  };
  return {
    ...ownProcessOnly,
    clone: exceptWithBits(0, anyNamespace),
    ioctl: exceptIf(1, [pushInput, consoleCommand]),
    personality: onlyIf(0, [0, 0xffffffff], notPermitted),
    prctl: exceptIf(0, refusedProcessOptions),
    fcntl: exceptIf(1, refusedFileCommands),
    socket: onlyIf(0, [unix, internet, internet6], noSuchFamily),
    socketpair: onlyIf(0, [unix], noSuchFamily),
    ...(isClosed ? refusing(systemV, notPermitted) : {}),
    ...(isMemoryCounted ? {} : uncountedMemoryRules()),
    ...(seesHost ? hostFileRules() : {}),
    ...(sockets === "none" ? noNetwork : {}),
  };
}

/** Runs the body for one system call only; it ends the program. */
function forCall(number: number, body: readonly Instruction[]): Instruction[] {
  return [[jumpIfEqual, 0, body.length, number], ...body];
}

/** Numbers that follow one another, as first and last. */
function runsOf(numbers: readonly number[]): [first: number, last: number][] {
  const runs: [number, number][] = [];
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run !== undefined && number <= run[1] + 1) run[1] = number;
    else runs.push([number, number]);
  }
  return runs;
}

function start({ audit, hasX32 }: Architecture, otherwise: number): Instruction[] {
  return [
    loadArchitecture,
    [jumpIfEqual, 1, 0, audit],
    [end, 0, 0, otherwise],
    loadNumber,
    ...(hasX32
      ? ([
          [jumpIfAtLeast, 0, 1, 0x40000000],
          [end, 0, 0, notImplemented],
        ] as const)
      : []),
  ];
}

/**
 * A seccomp program for an untrusted program, in the kernel's binary form: a list of the calls that it
 * may make. All others, those of newer kernels too, do not exist for it.
 */
export function seccompProgram(architecture: Architecture, options: SeccompOptions): Buffer {
  const rules = rulesOf(options);
  const isBound = (call: SystemCall): boolean => rules[call] !== undefined;
  const free = allowedCalls
    .filter((call) => !isBound(call))
    .flatMap((call) => architecture.numberOf(call) ?? []);
  return assembled([
    ...start(architecture, killProcess),
    ...runsOf(free).flatMap(([first, last]): Instruction[] => [
      [jumpIfAtLeast, 0, 2, first],
      [jumpIfAtLeast, 1, 0, last + 1],
      [end, 0, 0, allow],
    ]),
    ...callRules(architecture, rules),
    [end, 0, 0, notImplemented],
  ]);
}

function callRules(architecture: Architecture, rules: Rules): Instruction[] {
  return allowedCalls.flatMap((call) => {
    const [number, rule] = [architecture.numberOf(call), rules[call]];
    return number === undefined || rule === undefined ? [] : forCall(number, rule);
  });
}

export interface NotifyOptions {
  /** The supervisor answers what asks or changes facts about files, and counts files that are made. */
  files: boolean;
  /** The supervisor counts processes and threads. */
  tasks: boolean;
  /** The supervisor counts sockets and pipes. */
  sockets: boolean;
}

const fileFacts: readonly SystemCall[] = [
  ...([
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
  ] as const),
  ...([
    "statfs",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
  ] as const),
];
const makers: readonly SystemCall[] = [
  ...([
    "creat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
  ] as const),
];

/**
 * A seccomp program that hands calls to the supervisor in `sbx/sbx.c`, which answers or counts them,
 * and lets all others through. It stands beside that of `seccompProgram`, which refuses.
 */
export function notifyProgram(
  architecture: Architecture,
  { files, tasks, sockets }: NotifyOptions,
): Buffer {
  const asked = (calls: readonly SystemCall[]): Rules =>
    Object.fromEntries(calls.map((call) => [call, always(notify)]));
  const rules: Rules = {
    ...(files ? asked([...fileFacts, ...makers]) : {}),
    ...(files
      ? { open: exceptWithBits(1, creating, notify), openat: exceptWithBits(2, creating, notify) }
      : {}),
    ...(tasks ? asked(["clone", "fork", "vfork"]) : {}),
    ...(sockets ? asked(["socket", "socketpair", "accept", "accept4", "pipe", "pipe2"]) : {}),
  };
  return assembled([
    ...start(architecture, allow),
    ...callRules(architecture, rules),
    [end, 0, 0, allow],
  ]);
}

function assembled(instructions: readonly Instruction[]): Buffer {
  const program = Buffer.alloc(instructions.length * 8);
  for (const [at, [operation, ifTrue, ifFalse, operand]] of instructions.entries()) {
    program.writeUInt16LE(operation, at * 8);
    program.writeUInt8(ifTrue, at * 8 + 2);
    program.writeUInt8(ifFalse, at * 8 + 3);
    program.writeUInt32LE(operand >>> 0, at * 8 + 4);
  }
  return program;
}
