import { runnerKeyOf } from "@larkline/protocol/runner";
import { runnerUserName } from "@larkline/redis-users";
import type { Secrets } from "./secrets.ts";
import {
  ofAdmin,
  ofRunners,
  runnerNames,
  secretsOfBots,
  settingsOf,
  type Service,
} from "./settings.ts";

type Values = Readonly<Record<string, string | undefined>>;

/** What is known of a deployment. */
export interface Known {
  /** The variables that the operator has written down. */
  env: Values;
  secrets: Secrets;
  /** Where Redis is, as this user of it. */
  redisUrlOf(user: string): string;
}

function redisUrl(user: string, { redisUrlOf }: Known): { REDIS_URL: string } {
  return { REDIS_URL: redisUrlOf(user) };
}

function runnerSecrets(runner: string, known: Known): Record<string, string> {
  const RUNNER_KEY = runnerKeyOf(known.secrets.signingKey, runner);
  return { ...redisUrl(runnerUserName(runner), known), RUNNER_NAME: runner, RUNNER_KEY };
}

/** What each service shares with others of the deployment, and with no more of them than it needs. */
const ownSecrets: Readonly<Record<Service, (known: Known) => Record<string, string>>> = {
  ingress: (known) => ({ ...redisUrl("ingress", known), API_TOKEN: known.secrets.apiToken }),
  "agent-worker": (known) => ({
    ...redisUrl("agent-worker", known),
    CALL_SIGNING_KEY: known.secrets.signingKey,
    GRANT_KEY: known.secrets.grantKey,
  }),
  "tool-runner": (known) => runnerSecrets(runnerNames["tool-runner"], known),
  "feishu-runner": (known) => runnerSecrets(runnerNames["feishu-runner"], known),
  "python-runner": (known) => runnerSecrets(runnerNames["python-runner"], known),
  console: (known) => ({
    ...redisUrl("console", known),
    CONSOLE_PASSWORD: known.secrets.consolePassword,
  }),
};

function withNamed(name: string, given: Values): string[] {
  // Providers of larkline.config.ts have keys with names of their own.
  if (name === "OPENAI_API_KEY") {
    return Object.keys(given).filter((other) => other.endsWith("_API_KEY"));
  }
  if (!secretsOfBots.includes(name)) return [name];
  return [name, ...Object.keys(given).filter((other) => other.startsWith(`${name}_`))];
}

function valuesOf(names: readonly string[], given: Values): Record<string, string> {
  const all = names.flatMap((name) => withNamed(name, given));
  return Object.fromEntries(
    all.flatMap((name) => {
      const value = given[name];
      return value === undefined || value === "" ? [] : [[name, value]];
    }),
  );
}

/** The environment of one service, by the names of its variables. */
export function serviceValues(service: Service, known: Known): Record<string, string> {
  return { ...valuesOf(settingsOf[service], known.env), ...ownSecrets[service](known) };
}

/** The environment of a further runner, without what its tools need, which only the operator knows. */
export function runnerValues(runner: string, known: Known): Record<string, string> {
  return { ...valuesOf(ofRunners, known.env), ...runnerSecrets(runner, known) };
}

/** For people with a shell: `npm run doctor`, `audit`, `people` and `runner-key`. */
export function adminValues(known: Known): Record<string, string> {
  return {
    ...valuesOf(ofAdmin, known.env),
    ...redisUrl("admin", known),
    CALL_SIGNING_KEY: known.secrets.signingKey,
  };
}
