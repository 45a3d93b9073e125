import { startRedis } from "@larkline/testkit";
import { Redis } from "ioredis";
import { writeRedisUsers } from "../system/redis-users.ts";

/** What a stolen Redis user tries to make up, and the commands that would do it. */
interface Forgery {
  what:
    | "call"
    | "outcome"
    | "approval"
    | "answer"
    | "rule"
    | "identity"
    | "checkpoint"
    | "authority"
    | "sign-in"
    | "tool"
    | "token";
  commands: readonly string[];
}

const [cell, whole] = ["{larkline:3}", "{larkline}"];

/** A checkpoint, what it is made of, and what decides which worker may write it. */
const checkpoint: Forgery = {
  what: "checkpoint",
  commands: [
    `HSET ${cell}:state:x turn {}`,
    `HSET ${cell}:state:x summary {}`,
    `HSET ${cell}:state:x settings {}`,
    `HSET ${cell}:state:x epoch 1`,
    `HDEL ${cell}:state:x turn`,
    `DEL ${cell}:state:x`,
    `RPUSH ${cell}:h:x {}`,
    `LSET ${cell}:h:x 0 {}`,
    `SET ${whole}:state-version 1`,
  ],
};
const call: Forgery = {
  what: "call",
  commands: [
    `HSET ${cell}:state:x turn {}`,
    `HSET ${cell}:calls:x c1 open`,
    `HSETNX ${cell}:calls:x c1 open`,
  ],
};
/** The console tends the queues; a job without a worker's envelope is refused by every runner. */
const job: Forgery = { what: "call", commands: [`LPUSH ${whole}:tools-other:wait 1`] };
const outcome: Forgery = {
  what: "outcome",
  commands: [`RPUSH ${cell}:ctl:x {}`, `HSET ${cell}:calls:x c1 done`],
};
const approval: Forgery = {
  what: "approval",
  commands: [
    `HSET ${cell}:approval:x:1 approval {}`,
    `HSETNX ${cell}:approval:x:1 approval {}`,
    `HSET ${cell}:said:x:1 state approved`,
    `HSETNX ${cell}:said:x:1 decisions {}`,
    `RPUSH ${cell}:req:x {}`,
    `SET larkline:approval:1 x`,
  ],
};
/** Ingress takes clicks, so it may write down what was said: a worker looks at who may have said it. */
const authority: Forgery = {
  what: "authority",
  commands: [
    `HSET ${cell}:approval:x:1 approval {}`,
    `HSETNX ${cell}:approval:x:1 approval {}`,
    `HDEL ${cell}:approval:x:1 approval`,
    `SET larkline:approval:1 x`,
    `HSET ${whole}:rules:cli_x 1 {}`,
    `HSETNX ${whole}:rules:cli_x 1 {}`,
    `ZADD ${whole}:rules-of-chat:cli_x:oc_x 9 1`,
    `HDEL ${whole}:rules-revoked:cli_x 1`,
    "SET larkline:look:worker:groups:cli_x:ou_x []",
  ],
};
const rule: Forgery = {
  what: "rule",
  commands: [
    `HSET ${whole}:rules:cli_x 1 {}`,
    `HSETNX ${whole}:rules:cli_x 1 {}`,
    `ZADD ${whole}:rules-of-chat:cli_x:oc_x 9 1`,
    `HDEL ${whole}:rules-revoked:cli_x 1`,
  ],
};
const answer: Forgery = {
  what: "answer",
  commands: [
    `RPUSH ${cell}:ob:x {}`,
    `LSET ${cell}:ob:x 0 {}`,
    `XADD ${cell}:ev:x * n 1 d []`,
    `PUBLISH ${cell}:ch:x 1:[]`,
    `HSET ${cell}:letters x {}`,
    `RPUSH ${cell}:h:x {}`,
  ],
};
const identity: Forgery = {
  what: "identity",
  commands: [
    `RPUSH ${cell}:in:x 1:{}`,
    `SET ${cell}:parked:x:om_1 {}`,
    "SET larkline:look:worker:name:cli_x:ou_x forged",
    "SET larkline:look:worker:groups:cli_x:ou_x []",
  ],
};
const signIn: Forgery = {
  what: "sign-in",
  commands: [
    "SET larkline:look:console:console-sign-in:x {}",
    "GET larkline:look:console:console-sign-in:x",
  ],
};
const pause: Forgery = {
  what: "authority",
  commands: [
    'HSET {larkline}:pauses tool:deploy {"by":"x","sinceMs":1}',
    "HDEL {larkline}:pauses tool:deploy",
    "PUBLISH {larkline}:pauses-changed x",
    "HSET {larkline}:agent-versions version:default:1 x",
    "HDEL {larkline}:agent-versions head:default",
    "PUBLISH {larkline}:agent-versions-changed 1",
    "HSET {larkline}:added-providers provider:mine x",
    "HSET {larkline}:added-providers sealTo x",
    "HDEL {larkline}:added-providers provider:mine",
  ],
};
/** A runner may announce what it likes under its own name: whose a name is, workers have written down. */
const tool: Forgery = {
  what: "tool",
  commands: [
    `HSET ${whole}:tool-owners deploy recording`,
    `HSETNX ${whole}:tool-owners deploy recording`,
    `HDEL ${whole}:tool-owners deploy`,
    `HSET ${whole}:runners:other x {}`,
    `HDEL ${whole}:runners:other x`,
    `DEL ${whole}:tool-owners`,
  ],
};
/** As whom calls act: tokens, consents that wait, and the answers with which calls of others begin. */
const token: Forgery = {
  what: "token",
  commands: [
    `GET ${whole}:grant-tokens:cli_x:x`,
    `SET ${whole}:grant-tokens:cli_x:x forged`,
    `HSET ${whole}:grant:cli_x:x state active`,
    `GET ${whole}:consent:cli_x:x`,
    `SET ${whole}:consent:cli_x:x {}`,
    `SET ${whole}:consent-state:cli_x:x {}`,
    `GET ${whole}:consent-code:cli_x:x`,
    `GET ${cell}:begun:other:x`,
    `SET ${cell}:begun:other:x run`,
    `PUBLISH ${whole}:begun:other {}`,
    `HSET ${cell}:calls:x c1 open`,
  ],
};
/** What has been done stays written down as it was. */
const audit: Forgery = {
  what: "authority",
  commands: [`XADD ${cell}:audit * k x`, `DEL ${cell}:audit`],
};

/** Of ingress messages and clicks are conceded: it holds the platform's key. */
export const forgeriesOf: Readonly<Record<string, readonly Forgery[]>> = {
  "runner-recording": [
    checkpoint,
    call,
    job,
    outcome,
    approval,
    rule,
    answer,
    identity,
    audit,
    pause,
    tool,
    token,
  ],
  console: [checkpoint, call, outcome, approval, rule, answer, identity, audit, pause, token],
  ingress: [checkpoint, call, job, outcome, authority, rule, signIn, pause, tool, token],
};

export interface StolenUser {
  user: string;
  tried: number;
  /** What Redis did not refuse. */
  forged: string[];
}

async function isRefused(client: Redis, line: string): Promise<boolean> {
  const [command = "", ...words] = line.split(" ");
  // Also by a script, which names no key: what it does is checked command by command.
  const script = "return redis.call(unpack(ARGV))";
  const answers = await Promise.allSettled([
    client.call(command, ...words),
    client.eval(script, 0, command, ...words),
  ]);
  return answers.every(
    (one) =>
      one.status === "rejected" && /NOPERM|can't (?:access|run|publish)/.test(String(one.reason)),
  );
}

/** Tries, as each of the shipped users, to make up what it must not, on a Redis of its own. */
export async function attackWithStolenUsers(): Promise<StolenUser[]> {
  const users = await writeRedisUsers(["recording", "other"]);
  const redis = await startRedis({ users });
  try {
    return await Promise.all(
      Object.entries(forgeriesOf).map(async ([user, forgeries]) => {
        const client = new Redis(users.urlAs(redis.port, user), { maxRetriesPerRequest: 1 });
        const lines = forgeries.flatMap(({ what, commands }) =>
          commands.map((line) => ({ what, line })),
        );
        const refused = await Promise.all(
          lines.map(async ({ line }) => await isRefused(client, line)),
        );
        client.disconnect();
        const forged = lines
          .filter((_, at) => !refused[at])
          .map(({ what, line }) => `${what}: ${line}`);
        return { user, tried: lines.length, forged };
      }),
    );
  } finally {
    await redis.stop();
    await users.remove();
  }
}
