// `node infra/dev/run.mjs [--redis] <file.ts> [arguments]`: sets up when needed, then runs a file with
// the pinned Node. `--redis` makes sure that a redis-server can be started by it.
import { spawn } from "node:child_process";
import { isAbsolute, join } from "node:path";
import { Failure } from "./launcher/failure.mjs";
import { live } from "./launcher/life.mjs";
import { dataFolder, nodeProgram, root } from "./launcher/paths.mjs";
import { installDependencies, installProgram, redisProgram } from "./launcher/set-up.mjs";

const exitCodeOfSignal = 128;
const signalNumbers = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 };

/** In a terminal Ctrl-C reaches the whole foreground group, so passing it on would double it. */
function forwardSignals(child) {
  const names = process.stdin.isTTY ? ["SIGTERM", "SIGHUP"] : ["SIGTERM", "SIGHUP", "SIGINT"];
  for (const name of names) process.on(name, () => child.kill(name));
}

/** Compiled code is kept between starts, where there is a place for it: each takes half the CPU. */
function codeCache() {
  try {
    return { NODE_COMPILE_CACHE: dataFolder("compile-cache") };
  } catch {
    return {};
  }
}

async function runFile([file, ...args]) {
  const child = spawn(nodeProgram(), [isAbsolute(file) ? file : join(root, file), ...args], {
    stdio: "inherit",
    env: { ...codeCache(), ...process.env },
  });
  forwardSignals(child);
  return await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) =>
      resolve(code ?? exitCodeOfSignal + (signalNumbers[signal] ?? 0)),
    );
  });
}

await live(
  async (life) => {
    const needsRedis = process.argv[2] === "--redis";
    const args = process.argv.slice(needsRedis ? 3 : 2);
    if (args.length === 0) {
      throw new Failure("usage: node infra/dev/run.mjs [--redis] <file.ts> [arguments]");
    }
    await installDependencies(life, args[0].startsWith("apps/") ? "playground" : "all");
    if (needsRedis) await installProgram(redisProgram, life);
    return await runFile(args);
  },
  { stoppedCode: 130 },
);
