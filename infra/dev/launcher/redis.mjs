import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, openSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { isInstalled, signalGroup } from "./command.mjs";
import { Failure, Stopped } from "./failure.mjs";
import { dataFolder, logDirectory, shownPath } from "./paths.mjs";
import { freePort } from "./port.mjs";
import { isRunning, until } from "./process.mjs";
import { text } from "./texts.mjs";

const answerMs = 3_000;

/** Sends AUTH (when there is a password) and PING; resolves with the last line of the answer. */
async function ping({ host, port, user, password, tls }) {
  return await new Promise((resolve, reject) => {
    const socket = tls ? connectTls({ host, port, servername: host }) : connect({ host, port });
    let answer = "";
    socket.setTimeout(answerMs, () =>
      socket.destroy(Object.assign(new Error("timeout"), { code: "ETIMEDOUT" })),
    );
    socket.once(tls ? "secureConnect" : "connect", () => {
      const words = user === "" ? ["AUTH", password] : ["AUTH", user, password];
      const auth =
        password === ""
          ? ""
          : `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`;
      socket.write(`${auth}PING\r\n`);
    });
    socket.on("data", (data) => {
      answer += data.toString("latin1");
      if (!/PONG|^-/m.test(answer)) return;
      socket.destroy();
      resolve(
        answer
          .trim()
          .split("\r\n")
          .find((line) => line.startsWith("-")) ?? "+PONG",
      );
    });
    socket.once("error", reject);
    socket.once("close", () => reject(Object.assign(new Error("closed"), { code: "closed" })));
  });
}

function firstNode(url) {
  const match =
    /^redis(s?)(?:\+sentinel|\+cluster)?:\/\/(?:([^:@/]*)(?::([^@/]*))?@)?([^:,/]+|\[[^\]]+\])(?::(\d+))?/.exec(
      url,
    );
  if (match === null) throw new Failure(text("redisUrlWrong"));
  const [, tls, user = "", password = "", host, port = "6379"] = match;
  return {
    tls: tls === "s",
    user: decodeURIComponent(user),
    password: decodeURIComponent(password),
    host: host.replaceAll(/[[\]]/g, ""),
    port: Number(port),
  };
}

/** Fails with one line when the Redis that the person named does not answer or refuses the password. */
export async function requireRedis(url) {
  const node = firstNode(url);
  const shown = `${node.host}:${node.port}`;
  let answer;
  try {
    answer = await ping(node);
  } catch (error) {
    throw new Failure(text("redisSilent", shown, error.code ?? error.message));
  }
  if (/^-(NOAUTH|WRONGPASS|ERR (invalid|AUTH))/i.test(answer)) {
    throw new Failure(text("redisPassword", shown));
  }
}

/** Ends a server that an earlier launcher left behind (it was killed): two must not share the files. */
async function endLeftOver(pidFile) {
  if (!existsSync(pidFile)) return;
  const pid = Number(readFileSync(pidFile, "utf8"));
  if (isRunning(pid, "redis-server")) {
    process.kill(pid, "SIGTERM");
    await until(() => !isRunning(pid, "redis-server"), { deadlineMs: 5_000 });
  }
  rmSync(pidFile, { force: true });
}

function settingsOf({ port, password, directory, pidFile }) {
  return [
    `port ${port}`,
    "bind 127.0.0.1",
    `requirepass ${password}`,
    `dir "${directory}"`,
    `pidfile "${pidFile}"`,
    "appendonly yes",
    'save ""',
    "maxmemory-policy noeviction",
    "daemonize no",
    "",
  ].join("\n");
}

/** On Linux the kernel ends the server with us, whatever ends us. */
function commandOfServer() {
  const guard =
    process.platform === "linux" && isInstalled("setpriv")
      ? ["setpriv", "--pdeathsig", "TERM", "--"]
      : [];
  return [...guard, "redis-server", "-"];
}

/**
 * Starts a Redis of our own on a free port of loopback: append-only in the data folder, with a
 * password that only our processes know (it goes in by standard input, so `ps` does not show it).
 */
export async function startPrivateRedis({ signal }) {
  const directory = dataFolder("redis");
  const pidFile = join(directory, "redis.pid");
  await endLeftOver(pidFile);
  const [port, password] = [await freePort(), randomBytes(24).toString("hex")];
  const log = openSync(join(logDirectory, "redis.log"), "w");
  const [program, ...args] = commandOfServer();
  const child = spawn(program, args, { detached: true, stdio: ["pipe", log, log] });
  const exited = new Promise((resolve) => {
    child.once("error", resolve);
    child.once("exit", resolve);
  });
  child.stdin.on("error", () => {});
  child.stdin.end(settingsOf({ port, password, directory, pidFile }));
  const gone = { now: false };
  void exited.then(() => (gone.now = true));
  const answers = () =>
    ping({ host: "127.0.0.1", port, user: "", password, tls: false }).then(
      (line) => line === "+PONG",
      () => false,
    );
  const ready = await until(async () => gone.now || signal.aborted || (await answers()), {
    deadlineMs: 20_000,
  });
  const server = { name: "redis", child, exited };
  if (signal.aborted || !ready || gone.now) {
    signalGroup(child, "SIGKILL");
    if (signal.aborted) throw new Stopped();
    throw new Failure(text("redisFailed", shownPath(join(logDirectory, "redis.log"))));
  }
  return { url: `redis://:${password}@127.0.0.1:${port}`, port, directory, server };
}
