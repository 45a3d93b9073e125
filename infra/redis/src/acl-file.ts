import { createHash } from "node:crypto";
import type { Grant, RedisUser } from "@larkline/store/rights";

/** User without a password who may ping. */
export const healthUser = "health";

function allow(commands: string): string {
  return commands
    .split(" ")
    .map((command) => `+${command}`)
    .join(" ");
}

function selector(...parts: string[]): string {
  return `(${parts.join(" ")})`;
}

function grantSelector({ on, patterns, commands }: Grant): string {
  const sign = on === "keys" ? "~" : "&";
  return selector(...patterns.map((pattern) => `${sign}${pattern}`), allow(commands));
}

/**
 * A script is called with the keys that it works on, and Redis asks for every right to them, whatever the script
 * does. That alone opens nothing: what a script does is checked command by command, as if its caller did it.
 */
function scriptRules(namespace: string): string[] {
  const keys = [`{${namespace}}:*`, `{${namespace}:*`, `${namespace}:*`];
  return [
    allow("script|exists script|load"),
    selector(...keys.map((key) => `~${key}`), allow("eval evalsha")),
  ];
}

/**
 * The rules of one user, as ACL SETUSER and an ACL file take them, from nothing on. Several passwords let one be
 * changed while it is in use; without any, no client can sign in as this user.
 */
export function rulesOf(user: RedisUser, passwords: readonly string[] = []): string {
  const { namespace, commands, runsScripts, grants } = user;
  return [
    "on",
    ...passwords.map((password) => `#${createHash("sha256").update(password).digest("hex")}`),
    "resetchannels",
    "-@all",
    allow(commands),
    ...(runsScripts ? scriptRules(namespace) : []),
    ...grants.map(grantSelector),
  ].join(" ");
}

const withoutPassword = [
  // No client can sign in as this user. But a server that starts carries out the transactions of its append-only file, scripts
  // included, as this user: without all rights it would leave them out without a word, and with them nearly everything.
  "user default off ~* &* +@all",
  // For health checks: finds out that the server lives, and nothing else.
  `user ${healthUser} on nopass resetchannels -@all +ping`,
];

/** A whole ACL file. `passwordsOf` gives the passwords of a user by name. */
export function aclFileOf(
  users: readonly RedisUser[],
  passwordsOf: (name: string) => readonly string[],
): string {
  const lines = users.map((user) => `user ${user.name} ${rulesOf(user, passwordsOf(user.name))}`);
  return `${[...withoutPassword, ...lines].join("\n")}\n`;
}
