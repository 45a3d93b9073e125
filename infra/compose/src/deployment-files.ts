import { aclFileOf, appUsers } from "@larkline/redis-users";
import { secretsFrom } from "./secrets.ts";
import { adminValues, runnerValues, serviceValues, type Known } from "./service-values.ts";
import { runnerNames, services } from "./settings.ts";

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

/** The default configuration: it has the effect of an empty one. */
export const standardConfig = "export default {};\n";

/** As Compose reads it: between single quotes nothing has a meaning. */
function line([name, value]: readonly [string, string]): string {
  if (/['\r\n]/.test(value)) {
    throw new RangeError(`${name} must not have quotes or line breaks in it.`);
  }
  return `${name}='${value}'\n`;
}

function envFile(name: string, values: Readonly<Record<string, string>>): DeploymentFile {
  return { name, text: Object.entries(values).map(line).join(""), isPublic: false };
}

/**
 * All files that compose.yaml names, from what the operator has written and what was kept of earlier times. Throws a
 * RangeError that names each value that has no place in the file.
 */
export function deploymentFiles(
  { env, config, runners = [] }: OperatorFiles,
  kept: Values,
): DeploymentFile[] {
  const own: readonly string[] = Object.values(runnerNames);
  const others = [...new Set(runners)].filter((runner) => !own.includes(runner));
  const users = appUsers(env["REDIS_NAMESPACE"] || "larkline", [...own, ...others]);
  const secrets = secretsFrom(env, kept);
  const redisUrlOf = (user: string): string =>
    `redis://${user}:${secrets.passwordOf(user)}@redis:6379`;
  const known: Known = { env, secrets, redisUrlOf };
  const usersFile = aclFileOf(users, (user) => [secrets.passwordOf(user)]);
  return [
    // First: a file that was written with a secret that is lost would be good for nothing.
    envFile(keptSecretsFile, secrets.values),
    { name: "redis/users.acl", text: usersFile, isPublic: true },
    { name: "config/larkline.config.ts", text: config ?? standardConfig, isPublic: true },
    envFile("admin.env", adminValues(known)),
    envFile("grafana.env", { GF_SECURITY_ADMIN_PASSWORD: secrets.grafanaPassword }),
    ...services.map((service) => envFile(`${service}.env`, serviceValues(service, known))),
    ...others.map((runner) => envFile(`runner-${runner}.env`, runnerValues(runner, known))),
  ];
}
