import { runnerKeyOf } from "@larkline/protocol";
import { exportAudit } from "./audit-export.ts";
import {
  readCommand,
  type AuditOptions,
  type Command,
  type DoctorOptions,
  type PeopleOptions,
  type RunnerKeyOptions,
  type RunnerOptions,
  type SetupOptions,
} from "./command-line.ts";
import { readDataDirectory, readDeployment, type Deployment } from "./config.ts";
import { examine } from "./doctor.ts";
import { readEnvFile } from "./env-file.ts";
import { linesOf, reportOf } from "./finding.ts";
import { languageOf } from "./language.ts";
import { lookAfterPerson, noApp } from "./people.ts";
import { noRedis, readPrivateRedis } from "./private-redis.ts";
import { createPrompt } from "./prompt.ts";
import { removeRunner } from "./runner-removal.ts";
import { setUp } from "./setup.ts";
import { noSigningKey, readStoredKey, shortestKey } from "./signing-key.ts";
import { usage } from "./usage.ts";

async function runDoctor({ envFile, language, json, webhookUrl }: DoctorOptions): Promise<number> {
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
    nodeVersion: process.versions.node,
    ...given,
  });
  if (json) console.log(JSON.stringify(reportOf(findings, language), undefined, 2));
  else for (const finding of findings) console.log(linesOf(finding, language).join("\n"));
  return findings.some(({ status }) => status === "problem") ? 1 : 0;
}

async function runSetup(options: SetupOptions): Promise<number> {
  const interrupt = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => interrupt.abort());
  const prompt = createPrompt({ input: process.stdin, output: process.stdout, interrupt });
  try {
    const columns = process.stdout.isTTY ? process.stdout.columns : 0;
    return await setUp({ options, env: process.env, prompt, signal: interrupt.signal, columns });
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
  const { signingKey } = await deploymentOf(envFile);
  const key = signingKey ?? (await readStoredKey(readDataDirectory(process.env)))?.key ?? "";
  if (key.length < shortestKey) throw new Error(noSigningKey[language]);
  console.log(runnerKeyOf(key, name));
  return 0;
}

async function runRunner({ envFile, language, name }: RunnerOptions): Promise<number> {
  const { redisUrl, namespace } = await deploymentOf(envFile);
  const url = redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (url === undefined) throw new Error(noRedis[language]);
  const { done, line } = await removeRunner(name, { redisUrl: url, namespace, language });
  if (done) console.log(line);
  else console.error(line);
  return done ? 0 : 1;
}

async function runAudit({ envFile, language, fromMs, toMs }: AuditOptions): Promise<number> {
  const { redisUrl, namespace } = await deploymentOf(envFile);
  const url = redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (url === undefined) throw new Error(noRedis[language]);
  await exportAudit({ redisUrl: url, namespace, fromMs, toMs, output: process.stdout });
  return 0;
}

async function runPeople(options: PeopleOptions): Promise<number> {
  const deployment = await deploymentOf(options.envFile);
  const { namespace, archiveUrl, blobDirectory, feishu } = deployment;
  const redisUrl = deployment.redisUrl ?? (await readPrivateRedis(readDataDirectory(process.env)));
  if (redisUrl === undefined) throw new Error(noRedis[options.language]);
  const app = options.app ?? feishu?.appId;
  if (app === undefined) throw new Error(noApp[options.language]);
  const person = { app, id: options.person, chats: options.chats };
  const places = { redisUrl, namespace, archiveUrl, blobDirectory };
  await lookAfterPerson({ ...options, person, places, output: process.stdout });
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
