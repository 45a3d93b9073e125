import { legacyCalls, refusedCalls, type Architecture, type FilteredCall } from "./system-call.ts";

export interface SeccompOptions {
  /**
   * `loopback`: unix and internet sockets, harmless in a network namespace of its own. `none`: not
   * even those, nor queues and memory of System V, for tiers without namespaces.
   */
  sockets: "none" | "loopback";
  /** Where no control group counts memory: closes the ways to memory that a data limit does not count. */
  refuseSharedMemory: boolean;
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
const killProcess = 0x80000000;
const refuse = (errno: number): number => 0x00050000 | errno;
const notPermitted = refuse(1);
const notImplemented = refuse(38);
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

/** Runs the body for one system call only; it may load arguments. */
function forCall(number: number, body: readonly Instruction[]): Instruction[] {
  return [[jumpIfEqual, 0, body.length + 1, number], ...body, loadNumber];
}

function refuseCall(number: number, answer = notPermitted): Instruction[] {
  return [
    [jumpIfEqual, 0, 1, number],
    [end, 0, 0, answer],
  ];
}

/** Refuses what is loaded unless it is one of the values. */
function unlessOneOf(values: readonly number[], answer: number): Instruction[] {
  const jumps = values.map((value, at): Instruction => [jumpIfEqual, values.length - at, 0, value]);
  return [...jumps, [end, 0, 0, answer]];
}

function refuseIfOneOf(values: readonly number[]): Instruction[] {
  const jumps = values.map((value, at): Instruction => [
    jumpIfEqual,
    values.length - 1 - at,
    at + 1 === values.length ? 1 : 0,
    value,
  ]);
  return [...jumps, [end, 0, 0, notPermitted]];
}

function onlyFamilies(number: number, families: readonly number[]): Instruction[] {
  return forCall(number, [loadArgument(0), ...unlessOneOf(families, noSuchFamily)]);
}

function sharedMemoryRules(calls: Architecture["calls"]): Instruction[] {
  return [
    ...refuseCall(calls.memfd_create),
    ...forCall(calls.mmap, [
      loadArgument(3),
      [and, 0, 0, sharedAnonymous],
      [jumpIfEqual, 0, 1, sharedAnonymous],
      [end, 0, 0, notPermitted],
    ]),
  ];
}

const communication: readonly FilteredCall[] = ["shmget", "semget", "msgget", "mq_open"];

function filteredRules(calls: Architecture["calls"], options: SeccompOptions): Instruction[] {
  const { unix, internet, internet6 } = socketFamilies;
  const isClosed = options.sockets === "none" || options.refuseSharedMemory;
  return [
    // Its flags lie behind a pointer; the C library falls back to clone.
    ...refuseCall(calls.clone3, notImplemented),
    ...(isClosed ? communication.flatMap((name) => refuseCall(calls[name])) : []),
    ...(options.refuseSharedMemory ? sharedMemoryRules(calls) : []),
    ...forCall(calls.clone, [loadArgument(0), [jumpIfAnyBit, 0, 1, anyNamespace], [end, 0, 0, notPermitted]]),
    ...forCall(calls.ioctl, [loadArgument(1), ...refuseIfOneOf([pushInput, consoleCommand])]),
    ...forCall(calls.personality, [loadArgument(0), ...unlessOneOf([0, 0xffffffff], notPermitted)]),
    ...onlyFamilies(calls.socket, options.sockets === "none" ? [] : [unix, internet, internet6]),
    ...onlyFamilies(calls.socketpair, [unix]),
  ];
}

/**
 * A seccomp program for an untrusted program, in the kernel's binary form. It names what is refused:
 * what a program needs grows with every library, what it must not have does not.
 */
export function seccompProgram(architecture: Architecture, options: SeccompOptions): Buffer {
  const { calls } = architecture;
  const legacy = legacyCalls.flatMap((name) => calls[name] ?? []);
  const instructions: Instruction[] = [
    loadArchitecture,
    [jumpIfEqual, 1, 0, architecture.audit],
    [end, 0, 0, killProcess],
    loadNumber,
    ...(architecture.hasX32
      ? ([
          [jumpIfAtLeast, 0, 1, 0x40000000],
          [end, 0, 0, notImplemented],
        ] as const)
      : []),
    ...[...refusedCalls.map((name) => calls[name]), ...legacy].flatMap((number) => refuseCall(number)),
    ...filteredRules(calls, options),
    [end, 0, 0, allow],
  ];
  const program = Buffer.alloc(instructions.length * 8);
  for (const [at, [operation, ifTrue, ifFalse, operand]] of instructions.entries()) {
    program.writeUInt16LE(operation, at * 8);
    program.writeUInt8(ifTrue, at * 8 + 2);
    program.writeUInt8(ifFalse, at * 8 + 3);
    program.writeUInt32LE(operand >>> 0, at * 8 + 4);
  }
  return program;
}
