import { readCommand, readDeployment, type DoctorOptions, type SetupOptions } from "./config.ts";
import { examine } from "./doctor.ts";
import { readEnvFile } from "./env-file.ts";
import { linesOf, reportOf } from "./finding.ts";
import { languageOf } from "./language.ts";
import { createPrompt } from "./prompt.ts";
import { setUp } from "./setup.ts";
import { usage } from "./usage.ts";

const interruptedCode = 130;

async function runDoctor({ envFile, language, json, webhookUrl }: DoctorOptions): Promise<number> {
  const file = await readEnvFile(envFile);
  const deployment = readDeployment({ ...file.values, ...process.env });
  const given = webhookUrl === undefined ? {} : { webhookUrl };
  const findings = await examine({ file, deployment, nodeVersion: process.versions.node, ...given });
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

async function run(): Promise<number> {
  if (process.argv.some((word) => word === "--help" || word === "-h")) {
    console.log(usage[languageOf(process.env)]);
    return 0;
  }
  const command = readCommand(process.argv.slice(2), process.env);
  if (!command.ok) {
    console.error(`${command.error}\n\n${usage[languageOf(process.env)]}`);
    return 2;
  }
  try {
    return command.value.command === "doctor" ? await runDoctor(command.value) : await runSetup(command.value);
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    return 1;
  }
}

// Whoever reads our output has left.
process.stdout.on("error", () => process.exit(interruptedCode));

process.exit(await run());
