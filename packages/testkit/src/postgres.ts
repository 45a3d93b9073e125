import { spawn } from "node:child_process";
import { once } from "node:events";
import { chown, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-port.ts";

/** A private PostgreSQL server. */
export interface TestPostgres {
  /** Of the database `postgres`, as its owner. */
  url: string;
  /** Stops it and starts it again with what it has stored. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Ends it and removes its files. */
  close(): Promise<void>;
}

/** Where Debian puts the programs of each version. */
const packages = "/usr/lib/postgresql";
const patienceMs = 60_000;

async function programFolder(): Promise<string> {
  const versions = await readdir(packages).catch(() => []);
  const newest = versions.sort((one, other) => Number(one) - Number(other)).at(-1);
  // Elsewhere the programs are on the PATH.
  return newest === undefined ? "" : join(packages, newest, "bin");
}

/** The unprivileged user id that every Linux has: PostgreSQL does not run as root. */
const nobody = 65_534;

async function run(program: string, args: readonly string[]): Promise<void> {
  const child = spawn(program, args, { ...owner(), stdio: ["ignore", "ignore", "pipe"] });
  let words = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (words += text));
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`${program} ended with ${code}: ${words}`);
}

function owner(): { uid?: number; gid?: number; cwd: string } {
  return process.getuid?.() === 0 ? { uid: nobody, gid: nobody, cwd: "/" } : { cwd: "/" };
}

async function answers(bin: string, port: number): Promise<boolean> {
  const asked = spawn(join(bin, "pg_isready"), ["-q", "-h", "127.0.0.1", "-p", String(port)], {
    stdio: "ignore",
  });
  const [code] = (await once(asked, "close")) as [number | null];
  return code === 0;
}

/** Starts a server of Debian's package on a free port, in an empty folder of its own. */
export async function startPostgres(): Promise<TestPostgres> {
  const bin = await programFolder();
  const folder = await mkdtemp(join(tmpdir(), "larkline-postgres-"));
  if (process.getuid?.() === 0) await chown(folder, nobody, nobody);
  const data = join(folder, "data");
  await run(join(bin, "initdb"), [
    "-D",
    data,
    "-U",
    "larkline",
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--no-sync",
    "--locale=C",
  ]);
  const port = await freePort();
  const settings = [
    `port=${port}`,
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
  ];
  const args = ["-D", data, ...settings.flatMap((setting) => ["-c", setting])];
  let server: ReturnType<typeof spawn> | undefined;

  const start = async (): Promise<void> => {
    const child = spawn(join(bin, "postgres"), args, { ...owner(), stdio: "ignore" });
    server = child;
    const deadlineMs = Date.now() + patienceMs;
    while (!(await answers(bin, port))) {
      if (child.exitCode !== null || Date.now() > deadlineMs) {
        throw new Error("PostgreSQL does not start");
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const stop = async (): Promise<void> => {
    if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, "exit");
    // At once, without waiting for those who are connected.
    server.kill("SIGINT");
    await ended;
  };
  await start();
  return {
    url: `postgres://larkline@127.0.0.1:${port}/postgres`,
    stop,
    start,
    close: async () => {
      await stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
