import type { Place } from "./key-families.ts";
import { addJobs, keepQueue, tendQueue, workQueue } from "./queue-commands.ts";
import type { Grant, RedisUser } from "./redis-user.ts";

// What each app does with what is stored: its calls of the stores in packages/session-redis, and what their scripts
// do, since a script runs with the rights of its caller. End-to-end tests run with these users and expect that Redis
// has refused nothing.

/** Opening a connection, asking for the server's version and clock, and transactions. */
const connection = "ping info select time multi exec discard client|setname cluster|slots cluster|nodes cluster|info";

/** The rate limits of the platform, its access tokens, and looked-up facts. */
const platform: Grant[] = [
  { keys: ["buckets"], commands: "hget hmget hset pexpire pttl" },
  { keys: ["platformCalls"], commands: "get incr pexpire" },
  { keys: ["tokens"], commands: "get set del pttl" },
  { keys: ["lookups"], commands: "get set del getdel" },
];

/** Keeping what is given up, within bounds. */
const keepingLetters: Grant[] = [
  { keys: ["letters"], commands: "hset hdel pexpire" },
  { keys: ["lettersByTime"], commands: "zadd zrem zcard zrange zrangebyscore pexpire" },
];

/** Telling others about this process. */
const announcing: Grant[] = [{ keys: ["instances"], commands: "hset hdel hgetall" }];

/** Sending replies: the outbox, and the cards of the reply at its head. */
const sending: Grant[] = [
  { keys: ["outboxes"], commands: "llen lindex lpop lset rpush" },
  { keys: ["due"], commands: "zadd zrem" },
  { keys: ["cards"], commands: "exists hget hset hdel" },
  { keys: ["openCards"], commands: "zadd zrem" },
  ...keepingLetters,
];

/** Deciding and settling approvals, and keeping rules. */
const deciding: Grant[] = [
  { keys: ["approvalSessions"], commands: "get" },
  { keys: ["approvals"], commands: "hmget hget hset hsetnx hdel hincrby pexpireat" },
  { keys: ["pending"], commands: "zrange zrem" },
  { keys: ["expiries"], commands: "zrem" },
  { keys: ["approvalCards"], commands: "zadd" },
  { keys: ["rules"], commands: "hget hmget hset hsetnx hdel" },
  { keys: ["rulesByExpiry"], commands: "zadd zrem zrangebyscore" },
  { keys: ["rulesOfChats"], commands: "zadd zrem zscore zrangebyscore zremrangebyscore zrevrange pexpireat" },
  { keys: ["audits"], commands: "xadd" },
];

/** Adding to traces, which get shortened when they are too long. */
const tracing: Grant[] = [{ keys: ["traces"], commands: "rpush pexpire llen lrange ltrim lpush" }];

/** Saying what a trace is about, so that it can be found. */
const naming: Grant[] = [{ keys: ["traceIndexes"], commands: "zadd zremrangebyrank pexpire" }];

/** A message comes in: who has written where, and above which numbers a session begins. */
const beginning: Grant[] = [
  { keys: ["sessions"], commands: "hexists" },
  { keys: ["floors"], commands: "hmget" },
  { keys: ["writers"], commands: "hsetnx" },
  { keys: ["people"], commands: "zadd" },
];

/** Removing a session, or what one person has written in it. */
const removing: Grant[] = [
  {
    keys: [
      "sessions",
      "inboxes",
      "controls",
      "calls",
      "histories",
      "events",
      "outboxes",
      "cards",
      "approvals",
      "pending",
      "keptApprovals",
      "writers",
    ],
    commands: "unlink",
  },
  { keys: ["sessions"], commands: "hget hmget exists" },
  { keys: ["inboxes", "controls", "histories"], commands: "llen lrange" },
  { keys: ["outboxes"], commands: "llen" },
  { keys: ["cards"], commands: "hlen hkeys" },
  { keys: ["pending"], commands: "zcard" },
  { keys: ["keptApprovals"], commands: "zrange" },
  { keys: ["writers"], commands: "hkeys hgetall" },
  { keys: ["floors"], commands: "hmget hset" },
  {
    keys: ["ended", "untended", "dirty", "due", "openCards", "expiries", "approvalCards", "people"],
    commands: "zrem",
  },
];

/** Looking after stored data: bounding, archiving and ending it. */
const keeping: Grant[] = [
  ...removing,
  { keys: ["ended", "untended"], commands: "zadd zscore zrange zcard zrangebyscore" },
  { keys: ["sessions"], commands: "hset" },
  { keys: ["histories"], commands: "ltrim" },
  { keys: ["audits"], commands: "xrange xlen xtrim" },
];

/** Appends, shows and stops; reads no history, and hands out no calls. */
function ingress(place: Place): RedisUser {
  return {
    name: "ingress",
    place,
    commands: connection,
    runsScripts: true,
    grants: [
      ...platform,
      ...sending,
      ...deciding,
      ...announcing,
      ...beginning,
      ...tracing,
      ...naming,
      { keys: ["sessions"], commands: "hget hmget hset hdel hincrby" },
      { keys: ["inboxes"], commands: "llen lindex lrange lrem rpush" },
      { keys: ["controls"], commands: "rpush" },
      { keys: ["histories"], commands: "llen" },
      { keys: ["events"], commands: "xadd xrange pexpire" },
      { keys: ["seen", "parked"], commands: "get set del" },
      { keys: ["dirty"], commands: "zadd" },
      { keys: ["spending"], commands: "zscore" },
      // Looking for events that never came: one process at a time does.
      { keys: ["watchDuties"], commands: "set" },
      { keys: ["eventWatches"], commands: "get set" },
      { keys: ["turnQueue"], commands: addJobs },
    ],
    publishes: ["eventBatches", "cancels"],
    subscribes: ["eventBatches"],
  };
}

/** Runs sessions: all of their keys, and adding jobs to every runner. */
function agentWorker(place: Place): RedisUser {
  return {
    name: "agent-worker",
    place,
    // Sessions that old versions have left are found by looking through the names of all keys.
    commands: `${connection} scan`,
    runsScripts: true,
    grants: [
      ...platform,
      ...sending,
      ...deciding,
      ...announcing,
      ...keeping,
      ...tracing,
      { keys: ["sessions"], commands: "hget hmget hset hdel hincrby" },
      { keys: ["inboxes"], commands: "llen lindex lrange lrem lpop rpush" },
      { keys: ["controls"], commands: "llen lrange ltrim rpush" },
      { keys: ["calls"], commands: "hget hgetall hset hsetnx" },
      // Removed by one command, which has to be allowed as a whole.
      { keys: ["controls", "calls"], commands: "del" },
      { keys: ["histories"], commands: "llen lindex lrange rpush" },
      { keys: ["events"], commands: "xadd pexpire" },
      { keys: ["seen", "parked"], commands: "get set del" },
      { keys: ["dirty", "deadlines", "expiries", "openCards"], commands: "zadd zrem zrangebyscore" },
      { keys: ["due"], commands: "zrangebyscore" },
      { keys: ["approvalSessions"], commands: "set" },
      { keys: ["approvals"], commands: "exists del" },
      { keys: ["pending"], commands: "zadd zscore" },
      { keys: ["keptApprovals"], commands: "zadd zrem zcard zrange zrevrange zremrangebyscore pexpireat" },
      { keys: ["approvalCards"], commands: "zrem zscore zrangebyscore" },
      { keys: ["approved"], commands: "sadd scard pexpire" },
      { keys: ["spending"], commands: "set zincrby zscore zcard zremrangebyrank sadd pexpireat" },
      { keys: ["blobs"], commands: "hset hmget pexpire" },
      { keys: ["alive"], commands: "set del mget" },
      { keys: ["workers"], commands: "zadd zrem zrange zremrangebyscore" },
      { keys: ["duties"], commands: "set" },
      { keys: ["runners"], commands: "hgetall" },
      { keys: ["turnQueue"], commands: workQueue },
      { keys: ["toolQueues"], commands: keepQueue },
    ],
    publishes: ["eventBatches", "cancels"],
    subscribes: ["cancels", "wakes", "runnersChanged"],
  };
}

/** Works its own queue, begins, reports and answers calls, and keeps what its tools make. */
function toolRunner(place: Place): RedisUser {
  return {
    name: runnerUserName(place.runner ?? "default"),
    place,
    commands: connection,
    runsScripts: true,
    grants: [
      ...tracing,
      { keys: ["toolQueues"], commands: workQueue },
      { keys: ["sessions"], commands: "hmget hset hincrby" },
      { keys: ["calls"], commands: "hget hset" },
      { keys: ["controls"], commands: "rpush" },
      { keys: ["dirty"], commands: "zadd" },
      { keys: ["deadlines"], commands: "zrem" },
      { keys: ["events"], commands: "xadd pexpire" },
      { keys: ["audits"], commands: "xadd" },
      { keys: ["turnQueue"], commands: addJobs },
      { keys: ["runners"], commands: "hget hgetall hset hdel" },
      { keys: ["blobs"], commands: "hset pexpire" },
      { keys: ["storedResults"], commands: "set del" },
    ],
    publishes: ["eventBatches", "runnersChanged", "wakes"],
    subscribes: ["cancels"],
  };
}

/** Resetting a session: whatever its turn holds goes, and its person is told. */
const resetting: Grant[] = [
  { keys: ["sessions"], commands: "hdel hexists" },
  { keys: ["inboxes"], commands: "lpop rpush" },
  { keys: ["calls"], commands: "hgetall" },
  { keys: ["controls", "calls"], commands: "del" },
  { keys: ["deadlines", "dirty", "expiries"], commands: "zrem" },
  { keys: ["approvals"], commands: "hget hset hincrby hdel pexpireat" },
  { keys: ["pending"], commands: "zrem" },
  { keys: ["approvalCards"], commands: "zadd" },
  { keys: ["ended", "untended"], commands: "zadd" },
  { keys: ["outboxes"], commands: "rpush lrange" },
  { keys: ["due"], commands: "zadd" },
  { keys: ["cards"], commands: "hget hset" },
  { keys: ["openCards"], commands: "zadd" },
];

/** For people with a browser: looks at everything but secrets, stops turns, revokes rules, and tends queues. */
function operatorConsole(place: Place): RedisUser {
  return {
    name: "console",
    place,
    // Queues of runners that are gone are found by looking through the names of all keys.
    commands: `${connection} scan`,
    runsScripts: true,
    grants: [
      { keys: ["signIns", "canaryReports"], commands: "get set del" },
      { keys: ["buckets"], commands: "hmget hset pexpire" },
      { keys: ["sessions"], commands: "hget hmget hset hincrby" },
      { keys: ["inboxes"], commands: "llen lindex lrange lrem" },
      { keys: ["controls"], commands: "rpush" },
      { keys: ["dirty"], commands: "zadd" },
      // Which console sends the message that proves that messages are answered.
      { keys: ["canaryDuties"], commands: "set" },
      // For /metrics: how all sessions are, and what of the platform's quota is used.
      { keys: ["dirty", "deadlines", "expiries", "due"], commands: "zrange zcard" },
      { keys: ["outboxes"], commands: "lindex" },
      { keys: ["platformCalls"], commands: "get" },
      { keys: ["events"], commands: "xadd pexpire" },
      { keys: ["histories"], commands: "llen lrange" },
      { keys: ["outboxes"], commands: "llen" },
      { keys: ["approvals"], commands: "hmget" },
      { keys: ["pending"], commands: "zrange" },
      { keys: ["expiries"], commands: "zrangebyscore" },
      { keys: ["rules"], commands: "hget hmget hset" },
      { keys: ["rulesByExpiry"], commands: "zrangebyscore" },
      { keys: ["rulesOfChats"], commands: "zrem zscore" },
      { keys: ["spending"], commands: "zscore zmscore zrevrangebyscore" },
      { keys: ["audits"], commands: "xadd" },
      { keys: ["runners"], commands: "hgetall" },
      { keys: ["alive"], commands: "mget" },
      { keys: ["workers"], commands: "zrange" },
      // For "Why no answer?": traces, and the ledgers that say where a message stands.
      { keys: ["traces"], commands: "lrange" },
      { keys: ["traceIndexes"], commands: "zrevrange" },
      { keys: ["seen"], commands: "get" },
      { keys: ["calls"], commands: "hgetall" },
      { keys: ["outboxes"], commands: "lrange" },
      { keys: ["due"], commands: "zscore" },
      { keys: ["events"], commands: "xrange" },
      { keys: ["turnQueue", "toolQueues"], commands: tendQueue },
      ...resetting,
      // Finding sessions, and running a message again.
      { keys: ["ended"], commands: "zrevrange" },
      { keys: ["people"], commands: "zrangebylex" },
      { keys: ["seen"], commands: "get set" },
      ...beginning,
      // What was given up.
      { keys: ["letters"], commands: "hget hmget hexists hdel" },
      { keys: ["lettersByTime"], commands: "zrevrangebyscore zcount zrem" },
      // How long an access token is good for; not the token.
      { keys: ["tokens"], commands: "pttl" },
      { keys: ["instances"], commands: "hgetall" },
      { keys: ["eventWatches"], commands: "get" },
    ],
    publishes: ["eventBatches", "cancels"],
  };
}

/** For people: `npm run doctor`, `audit` and `people`, which takes the data of one person away. */
function admin(place: Place): RedisUser {
  return {
    name: "admin",
    place,
    // The last for chats that no index knows.
    commands: `${connection} config|get scan`,
    runsScripts: true,
    grants: [
      ...removing,
      { keys: ["sessions"], commands: "hset hdel hincrby" },
      { keys: ["inboxes"], commands: "lindex lrem" },
      { keys: ["controls"], commands: "rpush" },
      { keys: ["dirty"], commands: "zadd" },
      { keys: ["events"], commands: "xadd pexpire" },
      { keys: ["histories"], commands: "lset" },
      { keys: ["writers"], commands: "hdel" },
      { keys: ["people"], commands: "zrangebylex" },
      { keys: ["keptApprovals"], commands: "zrem" },
      { keys: ["approvals"], commands: "hget hmget" },
      { keys: ["pending"], commands: "zrange" },
      { keys: ["rules"], commands: "hget hmget hset hdel" },
      { keys: ["rulesByExpiry"], commands: "zrangebyscore zrem" },
      { keys: ["rulesOfChats"], commands: "zrem zscore" },
      { keys: ["letters"], commands: "hmget hdel" },
      { keys: ["lettersByTime"], commands: "zrevrangebyscore zrem" },
      { keys: ["lookups"], commands: "get del" },
      { keys: ["blobs"], commands: "unlink" },
      { keys: ["audits"], commands: "xrange xadd" },
      { keys: ["runners"], commands: "hgetall" },
      { keys: ["alive"], commands: "mget" },
      { keys: ["workers"], commands: "zrange" },
    ],
    publishes: ["eventBatches"],
  };
}

/** Each runner has a user of its own: it reaches no queue of another one. */
export function runnerUserName(runner: string): string {
  return `runner-${runner}`;
}

/** The users of a deployment with these runners. */
export function appUsers(namespace: string, runners: readonly string[]): RedisUser[] {
  const place = { namespace };
  return [
    ingress(place),
    agentWorker(place),
    ...runners.map((runner) => toolRunner({ namespace, runner })),
    operatorConsole(place),
    admin(place),
  ];
}
