import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { aclFileOf, appUsers, healthUser, runnerUserName } from "@larkline/redis-users";

/** Users of a Redis as a deployment has them, and one more who sees everything. */
export interface RedisUsers {
  /** What the server reads. */
  aclFile: string;
  /** Who may find out without a password whether it lives. */
  pingAs: string;
  /** Who may be everything; servers that follow each other do it as this one. */
  administrator: { name: string; password: string };
  /** An address of any kind with the user of an app in it. */
  urlFor(url: string, app: string, runner: string): string;
  /** The same for a user by name. */
  urlAs(port: number, user: string): string;
  remove(): Promise<void>;
}

/** May do everything; for the test itself. */
export const observer = "observer";

function passwordOf(user: string): string {
  return `of-${user}`;
}

/** Writes the users of a deployment with these runners into a file. */
export async function writeRedisUsers(runners: readonly string[]): Promise<RedisUsers> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-users-"));
  const aclFile = join(folder, "users.acl");
  const users = aclFileOf(appUsers("larkline", runners), (user) => [passwordOf(user)]);
  await writeFile(aclFile, `${users}user ${observer} on >${passwordOf(observer)} ~* &* +@all\n`);
  const withUser = (url: string, user: string): string =>
    url.replace("://", `://${user}:${passwordOf(user)}@`);
  return {
    aclFile,
    pingAs: healthUser,
    administrator: { name: observer, password: passwordOf(observer) },
    urlAs: (port, user) => withUser(`redis://127.0.0.1:${port}`, user),
    urlFor: (url, app, runner) =>
      withUser(url, app === "tool-runner" ? runnerUserName(runner) : app),
    remove: async () => await rm(folder, { recursive: true, force: true }),
  };
}
