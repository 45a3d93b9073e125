import { spawn, execFileSync, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir, loadavg } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";

/*
 * `npm run first-minutes`: what a newcomer waits for, in seconds. In an empty folder: a clone of this checkout's HEAD,
 * `npm start`, the first answer, the second start; then `npx larkline-create my-bot` from the packed tarball, its test,
 * and the answer of its tool from a deployment that mounts it by the command that was printed.
 */

const checkout = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "larkline-first-"));
const clone = join(folder, "larkline");
const rows: [what: string, seconds: number][] = [];
const beganMs = performance.now();

async function timed<Value>(what: string, work: () => Value | Promise<Value>): Promise<Value> {
  const startMs = performance.now();
  const value = await work();
  rows.push([what, (performance.now() - startMs) / 1_000]);
  return value;
}

function run(command: string, cwd: string): string {
  return execFileSync("sh", ["-c", command], {
    cwd,
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
}

const portNames = [
  "PLAYGROUND_PORT",
  "INGRESS_PORT",
  "AGENT_WORKER_PORT",
  "TOOL_RUNNER_PORT",
  "CONSOLE_PORT",
];
const ports: string[] = [];
for (const _ of portNames) ports.push(String(await freePort()));
const { PATH = "", HOME = "" } = process.env;
// The Node of this checkout is not the newcomer's.
const path = PATH.split(":").filter(
  (entry) => !entry.startsWith(checkout) && !entry.includes("node_modules"),
);
const env = {
  PATH: path.join(":"),
  HOME,
  LANG: "C",
  ...Object.fromEntries(portNames.map((name, at) => [name, ports[at]])),
};

/** Runs a command in the clone until it has started everything. */
async function start(command: string): Promise<ChildProcess> {
  const child = spawn("sh", ["-c", `exec ${command}`], {
    cwd: clone,
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  for await (const piece of child.stdout
    .setEncoding("utf8")
    .iterator({ destroyOnReturn: false }) as AsyncIterable<string>) {
    output += piece;
    if (output.includes("Larkline is running.")) break;
  }
  if (!output.includes("Larkline is running.")) throw new Error(`${command} ended: ${output}`);
  child.stdout.resume();
  return child;
}

async function stop(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGINT");
  await ended;
}

async function ask(message: string, answer: RegExp): Promise<void> {
  const url = `http://127.0.0.1:${ports[1]}/chat`;
  const text = await (
    await fetch(url, { method: "POST", body: JSON.stringify({ message }) })
  ).text();
  if (!answer.test(text)) throw new Error(`${message}: ${text}`);
}

try {
  await timed("git clone", () =>
    run(`git clone --quiet --depth 1 file://${checkout} larkline`, folder),
  );
  let running = await timed("npm start, installing", async () => await start("npm start"));
  await timed("first answer", async () => await ask("What is 12*7?", /"done".*84/));
  const firstMs = performance.now() - beganMs;
  await stop(running);
  running = await timed("npm start again", async () => await start("npm start"));
  await stop(running);
  rows.push(["from nothing to the first answer", firstMs / 1_000]);

  await timed("npm run pack, installing its tools", () => run("npm run --silent pack", clone));
  const create = "npx --yes --package ./dist/larkline-create-0.1.0.tgz larkline-create ../my-bot";
  const said = await timed("npx larkline-create my-bot", () => run(create, clone));
  await timed("npm install", () =>
    run("npm install --silent --no-audit --no-fund", join(folder, "my-bot")),
  );
  await timed("npm test", () => run("npm test --silent", join(folder, "my-bot")));
  const mount =
    said
      .split("\n")
      .find((line) => line.includes("LARKLINE_CONFIG="))
      ?.trim() ?? "";
  running = await timed(
    "npm start with its configuration and tool",
    async () => await start(`env ${mount}`),
  );
  await timed(
    "answer of its tool",
    async () => await ask("roll a die", /The die shows \*\*[1-6]\*\*/),
  );
  await stop(running);
  const load = loadavg()[0]?.toFixed(1);
  for (const [what, seconds] of rows) console.log(`${seconds.toFixed(1).padStart(6)} s  ${what}`);
  console.log(`Load of this machine at the end: ${load}`);
} finally {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
