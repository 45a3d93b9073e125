import { createHmac, randomBytes } from "node:crypto";

type Values = Readonly<Record<string, string | undefined>>;

/** What the services of one deployment know from each other; made once and kept. */
export interface Secrets {
  signingKey: string;
  grantKey: string;
  apiToken: string;
  consolePassword: string;
  grafanaPassword: string;
  /** Password of a user of Redis; all are derived from one secret, and none reveals another. */
  passwordOf(user: string): string;
  /** As they are kept. */
  values: Readonly<Record<string, string>>;
}

/** The secrets of a deployment: those that the operator has chosen, those that were kept, and new ones for the rest. */
export function secretsFrom(given: Values, kept: Values): Secrets {
  const choose = (name: string): string =>
    given[name] || kept[name] || randomBytes(32).toString("hex");
  const signingKey = choose("CALL_SIGNING_KEY");
  const grantKey = choose("GRANT_KEY");
  const apiToken = choose("API_TOKEN");
  const consolePassword = choose("CONSOLE_PASSWORD");
  const grafanaPassword = choose("GRAFANA_PASSWORD");
  const redisKey = choose("REDIS_PASSWORDS_KEY");
  return {
    signingKey,
    grantKey,
    apiToken,
    consolePassword,
    grafanaPassword,
    passwordOf: (user) => createHmac("sha256", redisKey).update(`user:${user}`).digest("hex"),
    values: {
      CALL_SIGNING_KEY: signingKey,
      GRANT_KEY: grantKey,
      API_TOKEN: apiToken,
      CONSOLE_PASSWORD: consolePassword,
      GRAFANA_PASSWORD: grafanaPassword,
      REDIS_PASSWORDS_KEY: redisKey,
    },
  };
}
