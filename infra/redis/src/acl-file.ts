import { createHash } from "node:crypto";
import { channelFamilies, keyFamilies, type ChannelFamily, type Place } from "./key-families.ts";
import type { Grant, RedisUser } from "./redis-user.ts";

function allow(commands: string): string {
  return commands
    .split(" ")
    .map((command) => `+${command}`)
    .join(" ");
}

function selector(...parts: string[]): string {
  return `(${parts.join(" ")})`;
}

function grantSelector({ keys, commands }: Grant, place: Place): string {
  const patterns = keys.flatMap((family) => keyFamilies[family](place));
  return selector(...patterns.map((pattern) => `~${pattern}`), allow(commands));
}

function channelSelector(channels: readonly ChannelFamily[], commands: string, place: Place): string[] {
  if (channels.length === 0) return [];
  const patterns = channels.flatMap((family) => channelFamilies[family](place));
  return [selector(...patterns.map((pattern) => `&${pattern}`), allow(commands))];
}

/**
 * A script is called with the keys that it works on, and Redis asks for every right to them, whatever the script
 * does. That alone opens nothing: what a script does is checked command by command, as if its caller did it.
 */
function scriptRules({ namespace }: Place): string[] {
  const keys = [`{${namespace}}:*`, `{${namespace}:*`, `${namespace}:*`];
  return [allow("script|exists script|load"), selector(...keys.map((key) => `~${key}`), allow("eval evalsha"))];
}

/**
 * The rules of one user, as ACL SETUSER and an ACL file take them, from nothing on. Several passwords let one be
 * changed while it is in use; without any nobody can be this user.
 */
export function rulesOf(user: RedisUser, passwords: readonly string[] = []): string {
  const { place, commands, runsScripts, grants, publishes = [], subscribes = [] } = user;
  return [
    "on",
    ...passwords.map((password) => `#${createHash("sha256").update(password).digest("hex")}`),
    "resetchannels",
    "-@all",
    allow(commands),
    ...(runsScripts ? scriptRules(place) : []),
    ...grants.map((grant) => grantSelector(grant, place)),
    ...channelSelector(publishes, "publish", place),
    ...channelSelector(subscribes, "subscribe unsubscribe", place),
  ].join(" ");
}

/** Whoever has not said who they are may find out that the server lives. */
const anonymous = "user default on nopass resetchannels -@all +ping";

/** A whole ACL file. `passwordsOf` gives the passwords of a user by name. */
export function aclFileOf(users: readonly RedisUser[], passwordsOf: (name: string) => readonly string[]): string {
  const lines = users.map((user) => `user ${user.name} ${rulesOf(user, passwordsOf(user.name))}`);
  return `${[anonymous, ...lines].join("\n")}\n`;
}
