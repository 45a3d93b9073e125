import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-port.ts";

/** A private Redis server of a test. */
export interface TestRedis {
  url: string;
  port: number;
  process: ChildProcess;
  stop(): Promise<void>;
}

/** Users of an ACL file, of whom one without a password may ping. */
export interface TestRedisUsers {
  aclFile: string;
  pingAs: string;
}

export interface TestRedisOptions {
  /** Default: a free one. */
  port?: number;
  /** Where its files are; kept then. Default: a temporary folder that `stop` removes. */
  directory?: string;
  users?: TestRedisUsers;
  /** Further settings, as `redis-server` takes them. */
  settings?: readonly string[];
}

async function answersPing(port: number, user: string | undefined): Promise<boolean> {
  const asUser = user === undefined ? "" : `AUTH ${user} none\r\n`;
  return await new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(`${asUser}PING\r\n`));
    socket.setTimeout(500, () => socket.destroy());
    let answers = "";
    socket.on("data", (data) => {
      answers += data.toString();
      if (!/^(?:\+PONG|-.*)\r$/m.test(answers)) return;
      resolve(answers.includes("+PONG"));
      socket.destroy();
    });
    socket.on("error", () => resolve(false));
    socket.on("close", () => resolve(false));
  });
}

/** How long servers may take to start: it finds those that hang. */
export const patienceMs = 60_000;

/** Waits until a server answers on this port of loopback; `user` needs no password. `log`: what the server has said. */
export async function untilRedisAnswers(
  port: number,
  exited: () => boolean,
  user?: string,
  log: () => string = () => "is the port taken?",
): Promise<void> {
  const deadlineMs = Date.now() + patienceMs;
  while (!(await answersPing(port, user))) {
    if (exited()) throw new Error(`redis-server exited at start: ${log()}`);
    if (Date.now() > deadlineMs) throw new Error("redis-server does not answer within a minute");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const durable = ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"];

/**
 * Starts a `redis-server` of the test's own on a free port, append-only. `port` and `directory` let a
 * test restart the same server after a kill.
 */
export async function startRedis(options: TestRedisOptions = {}): Promise<TestRedis> {
  const { users, settings = [] } = options;
  const port = options.port ?? (await freePort());
  const directory = options.directory ?? (await mkdtemp(join(tmpdir(), "larkline-redis-")));
  const place = ["--port", String(port), "--bind", "127.0.0.1", "--dir", directory];
  const acl = users === undefined ? [] : ["--aclfile", users.aclFile];
  const command = [...place, ...durable, ...acl, ...settings];
  const server = spawn("redis-server", command, { stdio: ["ignore", "pipe", "ignore"] });
  let log = "";
  server.stdout
    .setEncoding("utf8")
    .on("data", (text: string) => (log = (log + text).slice(-2_000)));
  const exit = new Promise<void>((resolve) => server.once("exit", () => resolve()));
  const failure = new Promise<never>((_, reject) => server.once("error", reject));
  await Promise.race([
    untilRedisAnswers(
      port,
      () => server.exitCode !== null,
      users?.pingAs,
      () => log,
    ),
    failure,
  ]);
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    process: server,
    stop: async () => {
      server.kill("SIGTERM");
      await exit;
      if (options.directory === undefined) await rm(directory, { recursive: true, force: true });
    },
  };
}
