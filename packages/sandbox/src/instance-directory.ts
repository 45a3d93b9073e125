import { randomInt } from "node:crypto";
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rename,
  stat,
  writeFile,
} from "node:fs/promises";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import { type Clock, machineNow } from "@larkline/protocol/clock";
import { removeGroups } from "./control-group.ts";
import { userRange, usersPerInstance } from "./users.ts";
import { removeTree, unmountBelow } from "./removal.ts";
import { killUsers } from "./user-processes.ts";

/** A directory that one sandbox has for itself, and the users that go with it. */
export interface InstanceDirectory {
  readonly path: string;
  /** Unique among the instances of this host that run as the same user. */
  readonly name: string;
  /** The first of `usersPerInstance` users that no other instance uses; undefined where programs run as this user. */
  readonly firstUser: number | undefined;
  /** Notes in which directories control groups are made, for a successor. */
  noteGroups(parents: readonly string[]): Promise<void>;
  /** Removes it with all that is in it. Nothing may run in it any more. */
  close(): Promise<void>;
}

/** What a successor needs in order to clean up. */
interface Facts {
  firstUser?: number;
  groupParents?: readonly string[];
}

const ownerSocket = "owner.sock";
const factsFile = "facts.json";
const groupPrefix = (name: string): string => `larkline-${name}-`;
const ownNames = /^(?:\d+|new-[A-Za-z0-9]{6}|dead-(?:\d+|new-[A-Za-z0-9]{6})-\d+)$/;
const maxRootBytes = 80;
const attempts = 200;
const unfinishedMs = 60_000;

/** The name of a control group of an instance. */
export function groupName(instance: string, group: string): string {
  return groupPrefix(instance) + group;
}

/** Makes it if need be, and returns its real path: that is how the kernel names what is mounted below. */
async function openRoot(path: string): Promise<string> {
  await mkdir(path, { recursive: true, mode: 0o711 });
  const facts = await lstat(path);
  const isOurs =
    facts.isDirectory() && facts.uid === process.getuid?.() && (facts.mode & 0o022) === 0;
  if (!isOurs) throw new Error(`${path} belongs to, or can be changed by, another user`);
  const foreign = (await readdir(path)).find((name) => !ownNames.test(name));
  // Directories in it that no process holds are removed.
  if (foreign !== undefined) {
    throw new Error(`${path} holds other things: ${JSON.stringify(foreign)}`);
  }
  await chmod(path, 0o711);
  const root = await realpath(path);
  // A socket in it has a path of at most 107 bytes.
  if (Buffer.byteLength(root) > maxRootBytes) {
    throw new Error(`${root} is longer than ${maxRootBytes} bytes`);
  }
  return root;
}

/** Any other failure, such as having no descriptor left to ask with, says nothing: what lives must not be removed. */
const signsOfDeath = new Set(["ECONNREFUSED", "ENOENT"]);

/** The process that holds a directory listens on a socket in it. The kernel closes that socket with the process, in any container. */
async function isHeld(directory: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(join(directory, ownerSocket));
  socket
    .once("connect", () => resolve(true))
    .once("error", (error: NodeJS.ErrnoException) => resolve(!signsOfDeath.has(error.code ?? "")));
  return await promise.finally(() => socket.destroy());
}

async function listen(path: string): Promise<Server> {
  const server = createServer((socket) => socket.on("error", () => {}).end());
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject).listen(path, resolve);
  await promise;
  return server.on("error", () => {}).unref();
}

/**
 * Takes a number for this process, since users and control groups are those of the host, whatever the directory. The
 * kernel gives it back with the process. Undefined where an instance has it, maybe one in another directory.
 */
async function reserved(name: string): Promise<Server | undefined> {
  const address = `\0larkline-sandbox-${process.getuid?.() ?? 0}-${name}`;
  return await listen(address).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "EADDRINUSE") return undefined;
    throw error;
  });
}

async function closed(server: Server): Promise<void> {
  await new Promise((resolve) => server.close(resolve));
}

async function factsOf(directory: string): Promise<Facts> {
  try {
    return JSON.parse(await readFile(join(directory, factsFile), "utf8")) as Facts; // only this module writes it
  } catch {
    return {};
  }
}

/** Whether the work was done: not where an instance that lives, in another directory, has the number. */
async function asHolderOf(name: string, work: () => Promise<void>): Promise<boolean> {
  const reservation = await reserved(name);
  if (reservation === undefined) return false;
  try {
    await work();
    return true;
  } finally {
    await closed(reservation);
  }
}

/** Kills what still runs of a dead instance and removes its directory, groups and mounts. Hold its number meanwhile. */
async function removeRemains(directory: string, name: string, clock: Clock): Promise<void> {
  const { firstUser, groupParents = [] } = await factsOf(directory);
  await removeGroups(clock, groupParents, groupPrefix(name));
  if (firstUser !== undefined) await killUsers(firstUser, firstUser + usersPerInstance - 1);
  await unmountBelow(directory);
  await removeTree(directory);
}

/** Of several that start at once, the rename lets exactly one clean up. */
async function removeIfDead(root: string, name: string, clock: Clock): Promise<boolean> {
  const directory = join(root, name);
  const isNew = name.startsWith("new-");
  if (isNew && machineNow() - (await stat(directory)).mtimeMs < unfinishedMs) return false;
  if (await isHeld(directory)) return false;
  return await asHolderOf(name, async () => {
    const grave = join(root, `dead-${name}-${randomInt(2 ** 40)}`);
    await rename(directory, grave);
    await removeRemains(grave, name, clock);
  });
}

/** A grave whose digger died too. */
async function fillGrave(root: string, name: string, clock: Clock): Promise<void> {
  const [, instance = ""] = /^dead-(.+)-\d+$/.exec(name) ?? [];
  await asHolderOf(instance, async () => await removeRemains(join(root, name), instance, clock));
}

/** Cleans up after instances that were killed. Returns how many there were. */
async function sweep(root: string, clock: Clock): Promise<number> {
  let removed = 0;
  for (const name of await readdir(root)) {
    try {
      if (name.startsWith("dead-")) await fillGrave(root, name, clock);
      else if (await removeIfDead(root, name, clock)) removed += 1;
    } catch {
      // Another process is cleaning it up.
    }
  }
  return removed;
}

type Claim = Pick<InstanceDirectory, "name" | "firstUser"> & { reservation: Server };

/** Gives a directory its final name: a number that is reserved, and the users with it. */
async function claim(root: string, unnamed: string): Promise<Claim> {
  const users = userRange(unnamed);
  const instances = users?.instances ?? 1_000;
  for (let i = 0; i < attempts; i += 1) {
    const number = randomInt(instances);
    const name = String(number);
    const reservation = await reserved(name);
    if (reservation === undefined) continue;
    let isNamed = false;
    try {
      isNamed = await takeName(root, unnamed, name);
    } finally {
      if (!isNamed) await closed(reservation);
    }
    if (isNamed) return { name, firstUser: users?.firstUser(number), reservation };
  }
  throw new Error(`${root} is full`);
}

/** Whether the directory has the name now: not where another one has it, or the remains of one are still there. */
async function takeName(root: string, unnamed: string, name: string): Promise<boolean> {
  if (!(await rename(unnamed, join(root, name)).then(isDone, isTaken))) return false;
  // The process that removes a dead instance kills all of its users.
  const isHaunted = (await readdir(root)).some((entry) => entry.startsWith(`dead-${name}-`));
  if (isHaunted) await rename(join(root, name), unnamed);
  return !isHaunted;
}

const isDone = (): boolean => true;
/** A directory that is not empty has the name. */
function isTaken(error: NodeJS.ErrnoException): boolean {
  if (error.code === "ENOTEMPTY" || error.code === "EEXIST") return false;
  throw error;
}

/**
 * Takes a directory below `root`, which is made when it is missing, and cleans up there after those
 * that were killed. Rejects when `root` belongs to another user or cannot be written.
 */
export async function openInstanceDirectory(
  directory: string,
  options: { ownUsers: boolean; clock: Clock; onRemains(count: number): void },
): Promise<InstanceDirectory> {
  const root = await openRoot(directory);
  const removed = await sweep(root, options.clock);
  if (removed > 0) options.onRemains(removed);
  const unnamed = await mkdtemp(join(root, "new-"));
  await chmod(unnamed, 0o711);
  const server = await listen(join(unnamed, ownerSocket));
  await writeFile(join(unnamed, factsFile), "{}");
  const { name, firstUser, reservation } = await claim(root, unnamed);
  const path = join(root, name);
  const facts: Facts = options.ownUsers && firstUser !== undefined ? { firstUser } : {};
  await writeFile(join(path, factsFile), JSON.stringify(facts));
  return {
    path,
    name,
    firstUser: facts.firstUser,
    noteGroups: async (groupParents) => {
      await writeFile(join(path, factsFile), JSON.stringify({ ...facts, groupParents }));
    },
    close: async () => {
      try {
        await unmountBelow(path);
        await removeTree(path);
      } catch {
        // The socket closes below, so the next start removes the rest.
      }
      await Promise.all([server, reservation].map(closed));
    },
  };
}
