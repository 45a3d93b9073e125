import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { systemClock, withDeadline } from "@larkline/protocol/clock";
import { runnerKeyOf } from "@larkline/protocol/runner";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import {
  type Command,
  type DoctorOptions,
  type PeopleOptions,
  readCommand,
  type RecordsOptions,
  type RunnerKeyOptions,
  type RunnerOptions,
  type SetupOptions,
  usage,
} from "./command-line.ts";
import {
  type Bilingual,
  type Deployment,
  type Language,
  languageOf,
  readDataDirectory,
  readDeployment,
  readEnvFile,
} from "./config.ts";
import { linesOf, reportOf } from "./finding.ts";
import { noSigningKey, readStoredKey, shortestKey } from "./local-checks.ts";

// Each command loads what only it needs: all of that together takes more than half of the time of a short command.

async function runDoctor({ envFile, language, json, webhookUrl }: DoctorOptions): Promise<number> {
  const { examine } = await import("./doctor.ts");
  const file = await readEnvFile(envFile);
  const env = { ...file.values, ...process.env };
  const deployment = readDeployment(env);
  const given = webhookUrl === undefined ? {} : { webhookUrl };
  const dataDirectory = readDataDirectory(process.env);
  const findings = await examine({
    file,
    deployment,
    env,
    dataDirectory,
    clock: systemClock,
    nodeVersion: process.versions.node,
    ...given,
  });
  if (json) console.log(JSON.stringify(reportOf(findings, language), undefined, 2));
  else for (const finding of findings) console.log(linesOf(finding, language).join("\n"));
  return findings.some(({ status }) => status === "problem") ? 1 : 0;
}

async function runSetup(options: SetupOptions): Promise<number> {
  const [{ setUp }, { createPrompt }] = await Promise.all([
    import("./setup.ts"),
    import("./questions.ts"),
  ]);
  const interrupt = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => interrupt.abort());
  }
  const prompt = createPrompt({ input: process.stdin, output: process.stdout, interrupt });
  try {
    const columns = process.stdout.isTTY ? process.stdout.columns : 0;
    return await setUp({
      options,
      env: process.env,
      prompt,
      signal: interrupt.signal,
      columns,
      clock: systemClock,
    });
  } finally {
    prompt.close();
  }
}

/** The environment as `npm start` has it. Throws with all that is wrong with it. */
async function deploymentOf(envFile: string): Promise<Deployment> {
  const deployment = readDeployment({ ...(await readEnvFile(envFile)).values, ...process.env });
  if (deployment.problems.length > 0) throw new Error(deployment.problems.join("\n"));
  return deployment;
}

/** Prints the key and nothing else, for a shell to put it into a variable. */
async function runRunnerKey({ envFile, language, name }: RunnerKeyOptions): Promise<number> {
  console.log(await keyOfRunner(name, await deploymentOf(envFile), language));
  return 0;
}

async function keyOfRunner(
  name: string,
  { signingKey }: Deployment,
  language: Language,
): Promise<string> {
  const key = signingKey ?? (await readStoredKey(readDataDirectory(process.env)))?.key ?? "";
  if (key.length < shortestKey) throw new Error(noSigningKey[language]);
  return runnerKeyOf(key, name);
}

async function runRunner(options: RunnerOptions): Promise<number> {
  const { action, envFile, language, name } = options;
  const deployment = await deploymentOf(envFile);
  const { redisUrl, namespace } = deployment;
  const url = redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (url === undefined) throw new Error(noRedis[language]);
  if (action === "add") {
    const key = await keyOfRunner(name, deployment, language);
    console.log(lineOfRunner(options, { redisUrl: url, namespace, key }));
    return 0;
  }
  const { done, line } = await removeRunner(name, { redisUrl: url, namespace, language });
  if (done) console.log(line);
  else console.error(line);
  return done ? 0 : 1;
}

async function runAudit({ envFile, language, fromMs, toMs }: RecordsOptions): Promise<number> {
  const { redisUrl, namespace } = await deploymentOf(envFile);
  const url = redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (url === undefined) throw new Error(noRedis[language]);
  await exportAudit({ redisUrl: url, namespace, fromMs, toMs, output: process.stdout });
  return 0;
}

async function runRatings({ envFile, language, fromMs, toMs }: RecordsOptions): Promise<number> {
  const { exportRatings } = await import("./ratings.ts");
  const { namespace, archiveUrl, blobDirectory, ...deployment } = await deploymentOf(envFile);
  const redisUrl = deployment.redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (redisUrl === undefined) throw new Error(noRedis[language]);
  await exportRatings({
    places: { redisUrl, namespace, archiveUrl, blobDirectory },
    fromMs,
    toMs,
    output: process.stdout,
  });
  return 0;
}

async function runPeople(options: PeopleOptions): Promise<number> {
  const { lookAfterPerson, noApp } = await import("./people.ts");
  const deployment = await deploymentOf(options.envFile);
  const { namespace, archiveUrl, blobDirectory, feishu } = deployment;
  const redisUrl = deployment.redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (redisUrl === undefined) throw new Error(noRedis[options.language]);
  const app = options.app ?? feishu?.appId;
  if (app === undefined) throw new Error(noApp[options.language]);
  const person = { app, id: options.person, chats: options.chats };
  const places = { redisUrl, namespace, archiveUrl, blobDirectory };
  await lookAfterPerson({ ...options, clock: systemClock, person, places, output: process.stdout });
  return 0;
}

async function obey(command: Command): Promise<number> {
  switch (command.command) {
    case "doctor":
      return await runDoctor(command);
    case "setup":
      return await runSetup(command);
    case "runner-key":
      return await runRunnerKey(command);
    case "runner":
      return await runRunner(command);
    case "audit":
      return await runAudit(command);
    case "ratings":
      return await runRatings(command);
    case "people":
      return await runPeople(command);
  }
}

/** Carries out one command, `args` without its program; the exit code. */
export async function runCommand(args: readonly string[]): Promise<number> {
  if (args.some((word) => word === "--help" || word === "-h")) {
    console.log(usage[languageOf(process.env)]);
    return 0;
  }
  const command = readCommand(args, process.env);
  if (!command.ok) {
    console.error(`${command.error}\n\n${usage[languageOf(process.env)]}`);
    return 2;
  }
  try {
    return await obey(command.value);
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    return 1;
  }
}

interface AuditExport {
  redisUrl: string;
  namespace: string;
  /** Epoch ms: records from the first to before the second. */
  fromMs: number;
  toMs: number;
  output: Writable;
}

/** How long Redis may take for some records. */
const patienceMs = 10_000;

/** Writes records as JSON, one a line, in the order of their time. Rejects when Redis does not answer. */
async function exportAudit({
  redisUrl,
  namespace,
  fromMs,
  toMs,
  output,
}: AuditExport): Promise<void> {
  const { AuditLog } = await import("@larkline/store");
  let lastError: Error | undefined;
  const redis = connectRedis(redisUrl, { onError: (error) => (lastError = error) });
  try {
    const records = new AuditLog({ redis, namespace }).export(fromMs, toMs)[Symbol.asyncIterator]();
    for (;;) {
      const next = await withDeadline(systemClock, records.next(), patienceMs);
      if (next.done === true) return;
      if (!output.write(`${JSON.stringify(next.value)}\n`)) await once(output, "drain");
    }
  } catch (error) {
    // A connection that fails says more than the wait that it ended.
    throw lastError ?? error;
  } finally {
    await closeRedis(redis);
  }
}

const lines: Record<"removed" | "lives" | "unknown", (name: string) => Bilingual> = {
  removed: (name) => ({
    en: `Runner ${name} is forgotten: its tools are not offered any more.`,
    zh: `已忘掉 tool-runner ${name}：不再提供它的工具。`,
  }),
  lives: (name) => ({
    en: `Runner ${name} is running. Stop its processes first: each announces its tools every 2 seconds.`,
    zh: `tool-runner ${name} 正在运行。请先停止它的进程：它们每 2 秒会重新声明自己的工具。`,
  }),
  unknown: (name) => ({
    en: `There is no runner named ${name}: it never was there, or it has been forgotten.`,
    zh: `没有名为 ${name} 的 tool-runner：从未有过，或已被忘掉。`,
  }),
};

/**
 * The command of a shell that starts a further runner on this machine. Throws where its file is not there. A Python
 * program takes the name from the same variables.
 */
function lineOfRunner(
  { name, tools, language }: RunnerOptions,
  { redisUrl, namespace, key }: { redisUrl: string; namespace: string; key: string },
): string {
  const isFile = /\.(?:py|[cm]?[jt]s)$/.test(tools);
  const path = isFile ? resolve(process.env.INIT_CWD ?? ".", tools) : tools;
  if (isFile && !existsSync(path)) throw new Error(noTools(path)[language]);
  const isPython = path.endsWith(".py");
  const variables = {
    REDIS_URL: redisUrl,
    ...(namespace === "larkline" ? {} : { REDIS_NAMESPACE: namespace }),
    RUNNER_NAME: name,
    RUNNER_KEY: key,
    ...(isPython ? {} : { RUNNER_TOOLS: path, PORT: "0" }),
  };
  const root = fileURLToPath(new URL("../../..", import.meta.url));
  const program = isPython
    ? ["python3", path]
    : ["node", join(root, "infra/dev/run.mjs"), "apps/tool-runner/src/main.ts"];
  const set = Object.entries(variables).map(([variable, value]) => `${variable}=${quoted(value)}`);
  return [...set, ...program.map(quoted)].join(" ");
}

/** As one word of a POSIX shell. */
function quoted(word: string): string {
  return /^[\w@%+:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

function noTools(path: string): Bilingual {
  return {
    en: `${path} is not there: save a tool in it (the README has one), or name another file behind the name.`,
    zh: `没有文件 ${path}：请先在其中保存一个工具（README 里有示例），或在名称之后写另一个文件。`,
  };
}

/** Forgets a runner that is away. `line` says what became of it; not done where it lives, or is not known. */
async function removeRunner(
  name: string,
  { redisUrl, namespace, language }: { redisUrl: string; namespace: string; language: Language },
): Promise<{ done: boolean; line: string }> {
  const { RunnerDirectory } = await import("@larkline/store/runners");
  let problem: unknown;
  const redis = connectRedis(redisUrl, { onError: (error) => (problem = error) });
  try {
    const { forgotten, living } = await new RunnerDirectory({ redis, namespace }).forget(name);
    const ended = living > 0 ? lines.lives : forgotten ? lines.removed : lines.unknown;
    return { done: forgotten && living === 0, line: ended(name)[language] };
  } catch (error) {
    throw problem ?? error;
  } finally {
    await closeRedis(redis);
  }
}

/** What to do where there is none. */
const noRedis: Bilingual = {
  zh: "不知道 Redis 在哪里：请设置 REDIS_URL，或先运行 npm start。",
  en: "It is not known where Redis is: set REDIS_URL, or run npm start.",
};

/** Address and password of the Redis that `npm start` runs now; undefined when it does not run. */
async function readPrivateRedis(dataDirectory: string): Promise<string | undefined> {
  try {
    return (await readFile(join(dataDirectory, "redis.url"), "utf8")).trim();
  } catch {
    return undefined;
  }
}
