import { runnerKeyOf } from "@larkline/protocol";
import { aclFileOf, appUsers, runnerUserName, type RedisUser } from "@larkline/redis-users";
import { secretsFrom, type Secrets } from "./secrets.ts";
import { runnerNames, services, settingsOf, type Service } from "./settings.ts";

type Values = Readonly<Record<string, string | undefined>>;

/** A file that the composition names. */
export interface DeploymentFile {
  /** Path below the folder of such files. */
  name: string;
  text: string;
  /** Programs in containers, who are other users, have to read it; it holds no secret then. */
  isPublic: boolean;
}

/** What an operator has written down. */
export interface OperatorFiles {
  /** The variables of `.env`. */
  env: Values;
  /** The text of `larkline.config.ts`, if there is one. */
  config?: string;
  /** Runners besides those of the composition. */
  runners?: readonly string[];
}

/** Where the kept secrets of a deployment are. */
export const keptSecretsFile = "secrets.env";

/** As Compose reads it: between single quotes nothing has a meaning. */
function line([name, value]: readonly [string, string]): string {
  if (/['\r\n]/.test(value)) throw new RangeError(`${name} must not have quotes or line breaks in it.`);
  return `${name}='${value}'\n`;
}

function envFile(name: string, values: Readonly<Record<string, string>>): DeploymentFile {
  return { name, text: Object.entries(values).map(line).join(""), isPublic: false };
}

function redisUrl(user: string, secrets: Secrets): { REDIS_URL: string } {
  return { REDIS_URL: `redis://${user}:${secrets.passwordOf(user)}@redis:6379` };
}

function runnerSecrets(runner: string, secrets: Secrets): Record<string, string> {
  const RUNNER_KEY = runnerKeyOf(secrets.signingKey, runner);
  return { ...redisUrl(runnerUserName(runner), secrets), RUNNER_NAME: runner, RUNNER_KEY };
}

/** What each service shares with others of the deployment, and with no more of them than it needs. */
const ownSecrets: Readonly<Record<Service, (secrets: Secrets) => Record<string, string>>> = {
  ingress: (secrets) => ({ ...redisUrl("ingress", secrets), API_TOKEN: secrets.apiToken }),
  "agent-worker": (secrets) => ({ ...redisUrl("agent-worker", secrets), CALL_SIGNING_KEY: secrets.signingKey }),
  "tool-runner": (secrets) => ({
    ...runnerSecrets(runnerNames["tool-runner"], secrets),
    SANDBOX_TOKEN: secrets.sandboxToken,
  }),
  "python-runner": (secrets) => runnerSecrets(runnerNames["python-runner"], secrets),
  "sandbox-host": (secrets) => ({ SANDBOX_TOKEN: secrets.sandboxToken }),
  console: (secrets) => ({ ...redisUrl("console", secrets), CONSOLE_PASSWORD: secrets.consolePassword }),
};

function told(service: Service, given: Values): Record<string, string> {
  return Object.fromEntries(
    settingsOf[service].flatMap((name) => {
      const value = given[name];
      return value === undefined || value === "" ? [] : [[name, value]];
    }),
  );
}

function usersFile(users: readonly RedisUser[], secrets: Secrets): DeploymentFile {
  const text = aclFileOf(users, (user) => [secrets.passwordOf(user)]);
  return { name: "redis/users.acl", text, isPublic: true };
}

const standardConfig = "export default {};\n";

/**
 * All files that compose.yaml names, from what the operator has written and what was kept of earlier times. Throws a
 * RangeError that names what cannot be written.
 */
export function deploymentFiles({ env, config, runners = [] }: OperatorFiles, kept: Values): DeploymentFile[] {
  const own: readonly string[] = Object.values(runnerNames);
  const others = [...new Set(runners)].filter((runner) => !own.includes(runner));
  const users = appUsers(env["REDIS_NAMESPACE"] || "larkline", [...own, ...others]);
  const secrets = secretsFrom(env, kept);
  return [
    // First: a file that was written with a secret that is lost would be good for nothing.
    envFile(keptSecretsFile, secrets.values),
    usersFile(users, secrets),
    { name: "config/larkline.config.ts", text: config ?? standardConfig, isPublic: true },
    envFile("admin.env", { ...redisUrl("admin", secrets), CALL_SIGNING_KEY: secrets.signingKey }),
    ...services.map((service) => envFile(`${service}.env`, { ...told(service, env), ...ownSecrets[service](secrets) })),
    ...others.map((runner) => envFile(`runner-${runner}.env`, runnerSecrets(runner, secrets))),
  ];
}
