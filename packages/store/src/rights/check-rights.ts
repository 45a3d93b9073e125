import { isRedisTrouble, mastersOf, type RedisConnection } from "../connection.ts";
import { appUsers, runnerUserName, type Place, type RedisUser } from "./app-users.ts";

/** Which of these commands the user of the connection may not run. Asks the server's list of rights; runs none of them. */
const checkLua = `
if not redis.acl_check_cmd then return {} end
local refused = {}
for at, words in ipairs(cjson.decode(ARGV[1])) do
  if not redis.acl_check_cmd(unpack(words)) then refused[#refused + 1] = at end
end
return refused`;

const maxNamed = 5;

/**
 * What the user of this connection lacks to do all that the app does, in one sentence for its start: otherwise each right
 * would be missed in the middle of some work. Undefined: nothing, or Redis is away and cannot be asked. `app` is that of
 * a deployment's users, such as `ingress`.
 */
export async function rightsProblem(
  connection: RedisConnection,
  app: string,
  place: Place,
): Promise<string | undefined> {
  const { namespace, runner } = place;
  const name = runner === undefined ? app : runnerUserName(runner);
  const user = appUsers(namespace, runner === undefined ? [] : [runner]).find(
    (each) => each.name === name,
  );
  if (user === undefined) throw new RangeError(`no app ${app}`);
  const missing = await missingRights(connection, user).catch((error: unknown) => {
    if (isRedisTrouble(error)) return [];
    throw error;
  });
  if (missing.length === 0) return undefined;
  const rest = missing.length - maxNamed;
  const named = missing.slice(0, maxNamed).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
  return `Redis does not let the user of ${app} run ${named}: see npm run redis-users`;
}

/** Commands that the user should be let run and is not on some server, each once, with a key where it has some. */
export async function missingRights(
  connection: RedisConnection,
  user: RedisUser,
): Promise<string[]> {
  const asked = samplesOf(user);
  const commands = JSON.stringify(asked.map(({ words }) => words));
  const answers = await Promise.all(
    mastersOf(connection).map(async (server) => {
      try {
        return (await server.eval(checkLua, 0, commands)) as number[]; // what the script returns
      } catch (error) {
        if (error instanceof Error && error.message.startsWith("NOPERM")) {
          return "no scripts" as const;
        }
        throw error;
      }
    }),
  );
  if (answers.includes("no scripts")) return ["'eval'"];
  const refused = new Set(answers.flatMap((one) => (one === "no scripts" ? [] : one)));
  const found = new Map<string, string>();
  for (const [at, { name, on }] of asked.entries()) {
    if (refused.has(at + 1) && !found.has(name)) {
      found.set(name, on === undefined ? `'${name}'` : `'${name}' on ${on}`);
    }
  }
  return [...found.values()];
}

interface Sample {
  name: string;
  /** A key or a channel. */
  on?: string;
  words: string[];
}

function samplesOf({ namespace, commands, runsScripts, grants }: RedisUser): Sample[] {
  return [
    ...commands.split(" ").map((name) => ({ name, words: name.split("|") })),
    ...(runsScripts ? scriptSamples(namespace) : []),
    ...grants.flatMap(({ patterns, commands: granted }) => {
      const samples = patterns.map(literal);
      return granted.split(" ").flatMap((name) => samples.map((sample) => sampleOf(name, sample)));
    }),
  ];
}

function scriptSamples(namespace: string): Sample[] {
  return [
    { name: "script|exists", words: ["script", "exists", "0"] },
    { name: "script|load", words: ["script", "load", "0"] },
    ...["eval", "evalsha"].map((name) => ({ name, words: [name, "0", "1", `{${namespace}}:x`] })),
  ];
}

/** A key that a pattern of ours is about. */
function literal(pattern: string): string {
  return pattern.replaceAll("[0-9]", "0").replaceAll("[0-5]", "0").replaceAll("*", "x");
}

/** All of whose words are keys or channels. */
const ofKeysOnly: ReadonlySet<string> = new Set(
  "del exists mget unlink ssubscribe subscribe unsubscribe".split(" "),
);
const ofTwoKeys: ReadonlySet<string> = new Set(["blmove", "lmove", "rename", "rpoplpush"]);

/** A command with words where its keys are; of others Redis asks nothing. */
function sampleOf(name: string, on: string): Sample {
  if (ofKeysOnly.has(name)) return { name, on, words: [name, on] };
  if (name === "bzpopmin") return { name, on, words: [name, on, "0"] };
  return {
    name,
    on,
    words: ofTwoKeys.has(name) ? [name, on, on, "left", "left"] : [name, on, "0", "0"],
  };
}
