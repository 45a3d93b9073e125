import { randomBytes } from "node:crypto";
import { createSocket } from "node:dgram";
import { lstatSync, readlinkSync } from "node:fs";
import { chmod, chown, mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer, type AddressInfo, type Server } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  attackTargets,
  type AttackAim,
  type AttackCase,
  type AttackTarget,
} from "./attack-case.fixture.ts";

/** What one attack may try to reach, made for it alone. */
export interface AttackTargets {
  aim: AttackAim;
  hits: Record<AttackTarget, number>;
  /** What is different about the file of the runner's user by now. */
  changes(): string[];
  close(): Promise<void>;
}

const metadataAddress = "169.254.169.254";

function portOf(server: Server): number {
  const address = server.address();
  return (address as AddressInfo).port; // listening on TCP
}

function listening(
  server: Server,
  options: { port?: number; host?: string; path?: string },
): Promise<Server> {
  return new Promise((resolve, reject) => {
    server.once("error", reject).listen(options, () => resolve(server));
  });
}

function counting(count: () => void): Server {
  return createServer((socket) => {
    count();
    socket.on("error", () => {});
    socket.end("+PONG\r\n");
  });
}

async function freePort(): Promise<number> {
  const server = await listening(createServer(), { port: 0, host: "127.0.0.1" });
  const port = portOf(server);
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

/** Knocks at the port where an attack may listen, for as long as it runs. */
function knock(port: number, count: () => void): () => void {
  const timer = setInterval(() => {
    const socket = connect(port, "127.0.0.1");
    socket
      .on("data", (data) => (data.toString().includes("BACKDOOR") ? count() : undefined))
      .on("error", () => {});
  }, 60);
  return () => clearInterval(timer);
}

async function placeFiles(outside: string, mark: string, owner: number | undefined): Promise<void> {
  await mkdir(join(outside, "drop"), { recursive: true });
  await chmod(outside, 0o755);
  await chmod(join(outside, "drop"), 0o777);
  await writeFile(join(outside, "world.txt"), `WORLD-${mark}`, { mode: 0o644 });
  await writeFile(join(outside, "private.txt"), `PRIVATE-${mark}`, { mode: 0o600 });
  const own = join(outside, "own.txt");
  await writeFile(own, "own", { mode: 0o600 });
  await symlink(own, join(outside, "own.link"));
  if (owner !== undefined) await chown(own, owner, owner);
}

function namespacesOf(
  process: number,
): Pick<AttackAim, "pidNamespace" | "userNamespace" | "networkNamespace"> {
  const link = (kind: string): string => readlinkSync(`/proc/${process}/ns/${kind}`);
  return { pidNamespace: link("pid"), userNamespace: link("user"), networkNamespace: link("net") };
}

/** What has become different about the file of the runner's user, by name. */
function watchOwn(outside: string): () => string[] {
  const facts = (): Record<string, number> => {
    const { mode, mtimeMs, uid } = lstatSync(join(outside, "own.txt"));
    return { mode, mtimeMs, uid };
  };
  const before = facts();
  return () =>
    Object.entries(facts())
      .filter(([name, value]) => before[name] !== value)
      .map(([name]) => name);
}

/** Sets up everything that an attack on this runner may try to reach, in a directory that is removed with it. */
export async function placeTargets(
  attack: AttackCase,
  { runner, directory, owner }: { runner: number; directory: string; owner: number | undefined },
): Promise<AttackTargets> {
  const mark = `${attack.id}-${randomBytes(6).toString("hex")}`;
  const outside = join(directory, mark);
  await placeFiles(outside, mark, owner);
  const changes = watchOwn(outside);
  const hits = Object.fromEntries(attackTargets.map((name) => [name, 0])) as AttackTargets["hits"]; // all names are there
  const count = (name: AttackTarget) => () => void (hits[name] += 1);
  const unixSocket = join(outside, "redis.sock");
  const abstractSocket = `attack-${mark}`;
  const tcp = await listening(counting(count("tcp")), { port: 0, host: "127.0.0.1" });
  const servers = [tcp, await listening(counting(count("unix")), { path: unixSocket })];
  servers.push(await listening(counting(count("abstract")), { path: `\0${abstractSocket}` }));
  await chmod(unixSocket, 0o777);
  if (attack.id === "N2") {
    const metadata = createHttpServer((_request, response) => {
      count("metadata")();
      response.end("a key");
    });
    // Only where the judge has a network of its own; elsewhere the machine's real one must stay untouched by us.
    await listening(metadata, { port: 80, host: metadataAddress }).then(
      (server) => servers.push(server),
      () => undefined,
    );
  }
  const udp = createSocket("udp4").on("message", count("udp"));
  await new Promise<void>((resolve) => udp.bind(0, "127.0.0.1", resolve));
  const backdoorPort = await freePort();
  const stopKnocking = attack.id === "N7" ? knock(backdoorPort, count("backdoor")) : () => {};
  return {
    aim: {
      mark,
      runner,
      outside,
      source: fileURLToPath(import.meta.url),
      tcpPort: portOf(tcp),
      udpPort: udp.address().port,
      backdoorPort,
      unixSocket,
      abstractSocket,
      freeName: `free-${mark}`,
      ...namespacesOf(runner),
    },
    hits,
    changes,
    close: async () => {
      stopKnocking();
      udp.close();
      for (const server of servers) server.close();
      await rm(outside, { recursive: true, force: true });
    },
  };
}
