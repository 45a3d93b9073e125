import { keyRows, type App, type KeyRow } from "../key-table.ts";

/** Where the keys of one deployment are: its namespace, and the runner whose user is meant. */
export interface Place {
  namespace: string;
  runner?: string;
}

/** What a user may do with keys, or with channels, that these patterns of Redis match: commands, separated by blanks. */
export interface Grant {
  on: "keys" | "channels";
  patterns: readonly string[];
  commands: string;
}

/** One user of Redis: everything that is not named here is refused. */
export interface RedisUser {
  name: string;
  namespace: string;
  /** Commands that name neither key nor channel. */
  commands: string;
  /** Whether it calls scripts; what they do is checked command by command, as if the user did it. */
  runsScripts: boolean;
  grants: readonly Grant[];
}

/** Opening a connection, asking for the server's version and clock, and transactions. */
const connection =
  "ping info select time multi exec discard client|setname cluster|slots cluster|nodes cluster|info pubsub|shardnumsub";

/** Commands without a key of the apps that need more than a connection. */
const commandsOf: Partial<Record<App, string>> = {
  // Sessions that old versions have left are found by looking through the names of all keys.
  worker: `${connection} scan`,
  // So are queues of runners that are gone.
  console: `${connection} scan`,
  // And chats that no index knows.
  admin: `${connection} config|get scan`,
};

/** Each runner has a user of its own: it reaches no queue of another one. */
export function runnerUserName(runner: string): string {
  return `runner-${runner}`;
}

/**
 * The users of a deployment with these runners. What each may do with a key is in its row of the table of keys. End-to-end
 * tests run with these users and expect that Redis has refused nothing.
 */
export function appUsers(namespace: string, runners: readonly string[]): RedisUser[] {
  const user = (name: string, app: App, runner?: string): RedisUser => ({
    name,
    namespace,
    commands: commandsOf[app] ?? connection,
    runsScripts: true,
    grants: grantsOf(app, { namespace, ...(runner === undefined ? {} : { runner }) }),
  });
  return [
    // Appends, shows and stops; reads no history but that of the HTTP API, and hands out no calls.
    user("ingress", "ingress"),
    // Runs sessions: all of their keys, and adding jobs to every runner.
    user("agent-worker", "worker"),
    // Works its own queue, hands in what becomes of its calls, and keeps what its tools make. Reaches no session.
    ...runners.map((runner) => user(runnerUserName(runner), "runner", runner)),
    // For people with a browser: looks at everything but secrets, tends queues, and has workers do the rest.
    user("console", "console"),
    // For people: `npm run doctor`, `audit` and `people`, which takes the data of one person away.
    user("admin", "admin"),
  ];
}

/** Commands that take several keys or channels: Redis allows one where a single rule allows it with all of them. */
const ofMany: ReadonlySet<string> = new Set([
  "del",
  "exists",
  "mget",
  "unlink",
  "subscribe",
  "unsubscribe",
]);

function grantsOf(app: App, place: Place): Grant[] {
  const rights = keyRows().flatMap((row) => rightsIn(row, app, place));
  const grants = new Map<
    string,
    { on: Grant["on"]; patterns: readonly string[]; commands: Set<string> }
  >();
  const add = (on: Grant["on"], patterns: readonly string[], command: string): void => {
    const grant = grants.get(patterns.join(" ")) ?? { on, patterns, commands: new Set<string>() };
    grant.commands.add(command);
    grants.set(patterns.join(" "), grant);
  };
  for (const { on, patterns, commands } of rights) {
    for (const command of commands) if (!ofMany.has(command)) add(on, patterns, command);
  }
  for (const command of ofMany) {
    const allowing = rights.filter(({ commands }) => commands.includes(command));
    const patterns = new Set(allowing.flatMap((each) => each.patterns));
    if (allowing[0] !== undefined) add(allowing[0].on, [...patterns], command);
  }
  return [...grants.values()].map(({ commands, ...grant }) => ({
    ...grant,
    commands: [...commands].join(" "),
  }));
}

function rightsIn({ key, type, rights = {}, some = {} }: KeyRow, app: App, place: Place) {
  return [[key, rights] as const, ...Object.entries(some)].flatMap(
    ([form, { [app]: commands }]) => {
      if (commands === undefined) return [];
      const on: Grant["on"] = type === "channel" ? "channels" : "keys";
      return [{ on, patterns: patternsOf(form, place), commands: commands.split(" ") }];
    },
  );
}

/**
 * A form of keys as patterns of Redis. They match from the first open place behind the hash tag on, and so more keys than
 * the form has; what stands before it tells kinds of keys apart.
 */
function patternsOf(form: string, { namespace, runner }: Place): string[] {
  const named = form.replace("<ns>", namespace).replace("<runner>", runner ?? "<runner>");
  const [, tag = "", rest = ""] = /^(\{[^}]*\})?(.*)$/.exec(named) ?? [];
  // The sixteen cells, in two patterns: each names exact numbers, so that no key can pose as another one.
  const cells = ["[0-9]", "1[0-5]"].map((cell) => `{${namespace}:${cell}}`);
  const tags = tag === `{${namespace}:<c>}` ? cells : [tag.replace(/<.*>/, "*")];
  return tags.map((each) => each + rest.replace(/<.*$/, "*"));
}
