import { delivered, overMemory, overTasks, type AttackCase } from "./attack-case.fixture.ts";

function listed(value: unknown): string | undefined {
  return Array.isArray(value) && value.length > 0 ? value.join(", ") : undefined;
}

const queue = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
key = int(input["mark"][-6:], 16) | 0x1000000
`;
const queueLeft = `${queue}
found = libc.msgget(key, 0)
result = "QUEUE" if found >= 0 else "none"
if found >= 0: libc.msgctl(found, 0, None)`;

/** Attacks in Python and bash, which know ways that JavaScript does not. */
export const languageAttacks: readonly AttackCase[] = [
  {
    id: "X1",
    threat: "memory",
    title: "Python: shared anonymous maps and a memory file",
    alone: true,
    programs: [
      {
        runtime: "python",
        code: `
import mmap, os
taken, kept = 0, []
try:
    for _ in range(40):
        part = mmap.mmap(-1, 16 << 20)
        for page in range(0, 16 << 20, 4096): part[page] = 1
        kept.append(part)
        taken += 16
        print(taken, "MB", flush=True)
except BaseException as error: print(type(error).__name__)
try:
    file = os.memfd_create("x")
    for _ in range(40):
        os.write(file, b"x" * (16 << 20))
        taken += 16
        print(taken, "MB", flush=True)
except BaseException as error: print(type(error).__name__)
print(taken, "MB", flush=True)
result = taken`,
        wallMs: 60_000,
        ends: ["ok", "oom", "error"],
      },
    ],
    gotOut: overMemory,
  },
  {
    id: "X2",
    threat: "fork bomb",
    title: "bash: a function that forks itself twice",
    alone: true,
    programs: [
      {
        runtime: "bash",
        // In a shell of its own, which has the mark in its environment from the start.
        code: `/bin/bash -c 'fork() { if [ $1 -gt 0 ]; then fork $(($1 - 1)) & fork $(($1 - 1)) & fi; sleep 1; }; fork 7; sleep 1'`,
        wallMs: 8_000, // bash tries again and again
        ends: ["ok", "error", "timeout", "crashed", "oom", "output_limit"],
      },
    ],
    lingerMs: 200,
    gotOut: overTasks,
  },
  {
    id: "X3",
    threat: "kernel",
    title: "Python: io_uring, keyctl, userfaultfd, bpf, sockets of the kernel",
    programs: [
      {
        runtime: "python",
        code: `
import ctypes, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (250, 323, 321), "aarch64": (219, 282, 280)}[platform.machine()]
result = []
if libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0: result.append("io_uring")
if libc.syscall(numbers[0], 0, -3, 0) >= 0: result.append("keyctl")
if libc.syscall(numbers[1], 1) >= 0: result.append("userfaultfd")
if libc.syscall(numbers[2], 0, ctypes.create_string_buffer(128), 128) >= 0: result.append("bpf")
for name, family, kind in [("AF_VSOCK", 40, 1), ("AF_PACKET", 17, 3), ("AF_NETLINK", 16, 3)]:
    try:
        socket.socket(family, kind, 0)
        result.append(name)
    except OSError: pass`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ results }) => {
      const names = listed(results[0]?.value);
      return names && `the kernel gave it ${names}`;
    },
  },
  {
    id: "X4",
    threat: "secrets of the runner",
    title: "bash: the environment of every process in sight",
    programs: [
      {
        runtime: "bash",
        code: `for id in self 1 $PPID $ATTACK_RUNNER; do tr '\\0' '\\n' < /proc/$id/environ 2>/dev/null | grep -o 'ENV-SECRET-[a-z0-9]*'; done; true`,
        ends: ["ok"],
      },
    ],
    gotOut: (evidence) =>
      delivered(evidence).includes("ENV-SECRET-")
        ? "a secret of the environment was read"
        : undefined,
  },
  {
    id: "X5",
    threat: "other calls",
    title: "Python: a System V queue left for the next call",
    alone: true,
    programs: [
      { runtime: "python", code: `${queue}\nresult = libc.msgget(key, 0o1666)`, ends: ["ok"] },
      { runtime: "python", code: queueLeft, ends: ["ok"] },
      { runtime: "python", code: queueLeft, ends: ["ok"] },
    ],
    gotOut: ({ results }) =>
      results.slice(1).some(({ value }) => value === "QUEUE")
        ? "a later call found the queue"
        : undefined,
  },
  {
    id: "X6",
    threat: "other calls",
    title: "Python: descriptors that the runner passed on",
    programs: [
      {
        runtime: "python",
        code: `
import os
result = []
for number in range(4, 256):
    try:
        os.fstat(number)
        result.append(number)
    except OSError: pass`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ results }) => {
      const numbers = listed(results[0]?.value);
      return numbers && `inherited ${numbers}`;
    },
  },
];
