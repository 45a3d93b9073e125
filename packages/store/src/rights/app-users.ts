import type { Place } from "./key-families.ts";
import type { Grant, RedisUser } from "./redis-user.ts";

// What each app does with what is stored: its calls of the stores in packages/store/src, and what their scripts
// do, since a script runs with the rights of its caller. End-to-end tests run with these users and expect that Redis
// has refused nothing.

/* ---- What BullMQ does with the keys of a queue, by what is asked of it; its scripts run with the caller's rights ---- */

/** Adding jobs in place of finished ones of the same id (`add-job.lua`), and the facts that a queue keeps of itself. */
const addJobs = "del exists hmget hset incr llen lpush zadd zrem";

/** Adding jobs with a priority, looking a job up, removing one, and setting the limits of a queue. */
const keepQueue = `${addJobs} get hdel hget hgetall hlen hmset lpos lrange lrem pttl rpush scard set smembers srem xadd zcard zrange zrangebyscore zrevrangebyscore zscore`;

/**
 * All that a worker does: taking, renewing, finishing, retrying, giving back and recovering jobs. Runners in other
 * languages do it by plain commands, as docs/tool-protocol.md has them.
 */
const workQueue = `${keepQueue} blmove bzpopmin hexists hincrby lmove ltrim pexpire rpoplpush sadd xtrim zpopmin zremrangebyrank zremrangebyscore zrevrange`;

/** Looking into a queue, and what operators do with it: pause, retry, promote, clean. */
const tendQueue = `${keepQueue} hexists lindex lpop lset ltrim rename rpop sadd type zcount zrevrange`;

/** Removing what is kept of finished jobs. */
const eraseJobs = "del hget lrange zrange zrem";

/* ---- The users ---- */

/** Opening a connection, asking for the server's version and clock, and transactions. */
const connection =
  "ping info select time multi exec discard client|setname cluster|slots cluster|nodes cluster|info pubsub|shardnumsub";

/** The rate limits of the platform, its access tokens, and looked-up facts. */
const platform: Grant[] = [
  { keys: ["buckets"], commands: "hget hmget hset pexpire pttl zadd zcard zrange zremrangebyscore zscore" },
  { keys: ["platformCalls"], commands: "get incr pexpire" },
  { keys: ["tokens"], commands: "get set del pttl" },
  { keys: ["reactionLookups"], commands: "get set del getdel" },
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

/** Deciding and settling approvals, and revoking rules. What was asked, only workers write. */
const deciding: Grant[] = [
  { keys: ["approvalSessions"], commands: "get" },
  { keys: ["approvals"], commands: "hmget hget pexpireat" },
  { keys: ["said"], commands: "hmget hget hset hsetnx hdel hincrby pexpireat" },
  { keys: ["pending"], commands: "zrange zrem" },
  { keys: ["expiries"], commands: "zrem" },
  { keys: ["approvalCards"], commands: "zadd" },
  { keys: ["rules"], commands: "hget hmget" },
  { keys: ["rulesRevoked"], commands: "hmget hsetnx" },
  { keys: ["rulesOfChats"], commands: "zscore zrangebyscore" },
  { keys: ["audits"], commands: "xadd" },
];

/** What people allow from now on: a worker writes it when it has checked who has said so. */
const ruling: Grant[] = [
  { keys: ["rules"], commands: "hsetnx hdel" },
  { keys: ["rulesRevoked"], commands: "hdel" },
  { keys: ["rulesByExpiry"], commands: "zadd zrem zrangebyscore" },
  { keys: ["rulesOfChats"], commands: "zadd zrem zremrangebyscore zrevrange pexpireat" },
];

/** Listing what is remembered, taking it away, and the wish that nothing be remembered. Only workers write memories. */
const forgetting: Grant[] = [
  { keys: ["memoryIndexes"], commands: "zrange zrem" },
  { keys: ["memories"], commands: "hmget del" },
  { keys: ["forgottenMemories"], commands: "zadd zremrangebyscore pexpire" },
  { keys: ["memoryWishes"], commands: "exists set del" },
  { keys: ["memoryLookUps"], commands: "del" },
];

/** Adding to traces. */
const tracing: Grant[] = [
  { keys: ["traceRecords"], commands: "set" },
  { keys: ["traceLines"], commands: "rpush pexpire" },
];

/** Saying what a trace is about, so that it can be found. */
const naming: Grant[] = [{ keys: ["traceNames"], commands: "rpush pexpire" }];

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
      "folders",
      "approvals",
      "said",
      "states",
      "requests",
      "pending",
      "keptApprovals",
      "writers",
      "children",
      "endedChildren",
    ],
    commands: "unlink",
  },
  { keys: ["children"], commands: "hkeys hdel" },
  { keys: ["endedChildren"], commands: "zrange zrem" },
  { keys: ["childRoots"], commands: "zrem" },
  { keys: ["calls"], commands: "hkeys" },
  { keys: ["deadlines"], commands: "zrem" },
  { keys: ["sessions"], commands: "hmget exists" },
  { keys: ["states"], commands: "hget hmget exists" },
  { keys: ["said"], commands: "hget" },
  { keys: ["inboxes", "controls", "requests", "histories"], commands: "llen" },
  { keys: ["inboxes", "controls", "histories"], commands: "lrange" },
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
  { keys: ["childRoots"], commands: "zadd zrangebyscore" },
  { keys: ["endedChildren"], commands: "zadd zrangebyscore" },
  { keys: ["children"], commands: "hgetall" },
  { keys: ["sessions"], commands: "hget hset" },
  { keys: ["states"], commands: "hset" },
  { keys: ["histories"], commands: "ltrim" },
  { keys: ["audits"], commands: "xrange xlen xtrim" },
];

/** Appends, shows and stops; reads no history but that of the HTTP API, and hands out no calls. */
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
      ...forgetting,
      ...tracing,
      ...naming,
      { keys: ["warmUps"], commands: "hkeys hmget hset hsetnx lindex mget pexpire rpush set zadd" },
      { keys: ["sessions"], commands: "hget hmget hset hdel hincrby" },
      { keys: ["inboxes"], commands: "llen lindex lrange lrem rpush" },
      // What people say of answers.
      { keys: ["ratedReplies"], commands: "hget" },
      { keys: ["ratings"], commands: "hmget hset pexpire unlink" },
      { keys: ["ratingsByTime"], commands: "zadd zcard zrange zrem zremrangebyscore pexpire" },
      { keys: ["ingressLookups"], commands: "get set del getdel" },
      { keys: ["responseLookups"], commands: "get" },
      { keys: ["requestPaces"], commands: "get set" },
      { keys: ["states"], commands: "hget hmget" },
      { keys: ["requests"], commands: "rpush" },
      { keys: ["histories"], commands: "llen" },
      { keys: ["apiHistories"], commands: "lrange" },
      { keys: ["apiWriters"], commands: "hkeys hgetall" },
      { keys: ["children"], commands: "hgetall hkeys" },
      { keys: ["endedChildren"], commands: "zrange" },
      { keys: ["events"], commands: "xadd xrange pexpire" },
      { keys: ["seen", "parked"], commands: "get set del" },
      { keys: ["seen", "recalled"], commands: "mget" },
      { keys: ["recalled"], commands: "set exists" },
      { keys: ["dirty"], commands: "zadd" },
      { keys: ["spending"], commands: "zscore" },
      { keys: ["agentVersions"], commands: "hgetall" },
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
      ...ruling,
      ...forgetting,
      { keys: ["memoryIndexes"], commands: "zadd persist pexpire" },
      { keys: ["memories"], commands: "exists hset hincrby persist pexpire pttl" },
      { keys: ["memoryLookUps"], commands: "get set" },
      { keys: ["forgottenMemories"], commands: "zscore" },
      ...announcing,
      ...beginning,
      ...keeping,
      ...tracing,
      // For people who look: how runs have ended.
      { keys: ["runLists"], commands: "rpush pexpire" },
      { keys: ["usage"], commands: "set hlen hexists hincrby zincrby zcard zremrangebyrank pexpire" },
      { keys: ["ratedReplies"], commands: "hset pexpireat" },
      { keys: ["names"], commands: "hmget hset hdel" },
      { keys: ["namesByTime"], commands: "zadd zcard zrange zremrangebyrank zmscore" },
      { keys: ["sessions"], commands: "hget hmget hset hdel hincrby" },
      { keys: ["inboxes"], commands: "llen lindex lrange lrem lpop lpush rpush" },
      { keys: ["states"], commands: "hget hmget hset hdel hincrby" },
      { keys: ["stateVersion"], commands: "get set" },
      // Taking over what the version before has stored.
      { keys: ["sessions", "states", "floors", "approvals", "said"], commands: "hgetall hsetnx hdel" },
      { keys: ["floors", "sessions", "states"], commands: "hset" },
      { keys: ["workerLookups"], commands: "get set del getdel" },
      { keys: ["responseLookups"], commands: "set" },
      { keys: ["orders"], commands: "xrange xdel" },
      { keys: ["orderResults"], commands: "set" },
      { keys: ["pauses"], commands: "hgetall hexists hlen hset hdel" },
      { keys: ["agentVersions"], commands: "hget hmget hgetall hlen hset hdel" },
      // Orders of operators: a reset, and running a message again.
      { keys: ["letters"], commands: "hmget hexists hget" },
      { keys: ["floors"], commands: "hget" },
      { keys: ["controls"], commands: "llen lrange ltrim rpush" },
      { keys: ["requests"], commands: "llen lrange rpush" },
      // What runners hand in.
      { keys: ["handoffs"], commands: "xlen xrange xdel" },
      { keys: ["begun"], commands: "get set" },
      { keys: ["handoffRunners"], commands: "sadd smembers" },
      { keys: ["calls"], commands: "hget hgetall hset hsetnx hvals" },
      // Helpers: their sessions begin and end with calls of others.
      { keys: ["children"], commands: "hget hset hincrby hgetall" },
      { keys: ["endedChildren"], commands: "zcard" },
      { keys: ["sessions"], commands: "exists" },
      { keys: ["writers"], commands: "hset" },
      { keys: ["people"], commands: "zadd" },
      // Removed by one command, which has to be allowed as a whole.
      { keys: ["controls", "requests", "calls", "folders"], commands: "del" },
      { keys: ["folders"], commands: "hget hgetall hset hdel hkeys hlen hstrlen" },
      { keys: ["histories"], commands: "llen lindex lrange rpush" },
      { keys: ["events"], commands: "xadd xrange pexpire" },
      { keys: ["seen", "parked"], commands: "get set del" },
      { keys: ["seen", "recalled"], commands: "mget" },
      { keys: ["dirty", "deadlines", "expiries", "openCards"], commands: "zadd zrem zrangebyscore" },
      { keys: ["due"], commands: "zrangebyscore" },
      { keys: ["approvalSessions"], commands: "set" },
      { keys: ["approvals"], commands: "exists hset hgetall hdel del pttl" },
      { keys: ["said"], commands: "del exists pexpire" },
      { keys: ["pending"], commands: "zadd zscore" },
      { keys: ["keptApprovals"], commands: "zadd zrem zcard zrange zrevrange zremrangebyscore pexpireat" },
      { keys: ["approvalCards"], commands: "zrem zscore zrangebyscore" },
      { keys: ["approved"], commands: "sadd scard pexpire" },
      { keys: ["spending"], commands: "set zincrby zscore zcard zremrangebyrank sadd pexpireat" },
      { keys: ["blobs"], commands: "hset hmget pexpire" },
      { keys: ["alive"], commands: "get set del mget exists" },
      { keys: ["present"], commands: "zadd zrem zrange zrangebyscore zremrangebyscore" },
      { keys: ["duties"], commands: "set" },
      { keys: ["everyRunner"], commands: "hgetall" },
      { keys: ["runnerNames"], commands: "smembers" },
      { keys: ["toolOwners"], commands: "hgetall hset hsetnx hdel" },
      { keys: ["turnQueue"], commands: workQueue },
      { keys: ["toolQueues"], commands: keepQueue },
    ],
    publishes: ["eventBatches", "cancels", "runnerCancels", "handoffAnswers", "pausesChanged", "agentVersionsChanged"],
    subscribes: ["cancels", "runnersChanged", "handoffNotifications", "pausesChanged", "agentVersionsChanged"],
    isPresent: true,
  };
}

/** Works its own queue, hands in what becomes of its calls, and keeps what its tools make. Reaches no session. */
function toolRunner(place: Place): RedisUser {
  return {
    name: runnerUserName(place.runner ?? "default"),
    place,
    commands: connection,
    runsScripts: true,
    grants: [
      ...tracing,
      { keys: ["toolQueues"], commands: workQueue },
      { keys: ["handoffs"], commands: "xadd" },
      { keys: ["begun"], commands: "get" },
      { keys: ["runners"], commands: "hget hset hdel pexpire" },
      { keys: ["everyRunner"], commands: "hgetall hvals" },
      { keys: ["runnerNames"], commands: "smembers sadd" },
      { keys: ["toolOwners"], commands: "hgetall" },
      { keys: ["blobs"], commands: "hset pexpire" },
      { keys: ["alive"], commands: "get set del exists" },
      { keys: ["present"], commands: "zadd zrem zrangebyscore zremrangebyscore" },
    ],
    publishes: ["handoffNotifications", "runnersChanged"],
    subscribes: ["runnerCancels", "handoffAnswers", "runnersChanged"],
    isPresent: true,
  };
}

/** For people with a browser: looks at everything but secrets, tends queues, and has workers do the rest. */
function operatorConsole(place: Place): RedisUser {
  return {
    name: "console",
    place,
    // Queues of runners that are gone are found by looking through the names of all keys.
    commands: `${connection} scan`,
    runsScripts: true,
    grants: [
      { keys: ["consoleLookups"], commands: "get set del" },
      // What operators want done: workers look at it, do it, and keep a record of who asked.
      { keys: ["orders"], commands: "xadd xdel" },
      { keys: ["orderResults"], commands: "get" },
      { keys: ["pauses", "agentVersions"], commands: "hgetall" },
      { keys: ["buckets"], commands: "hmget hset pexpire pttl zadd zcard zcount zrange zremrangebyscore" },
      { keys: ["sessions", "states"], commands: "hget hmget" },
      { keys: ["children"], commands: "hgetall hkeys" },
      { keys: ["endedChildren"], commands: "zrange" },
      { keys: ["inboxes"], commands: "llen lindex lrange" },
      // Which console sends the message that proves that messages are answered.
      { keys: ["canaryDuties"], commands: "set" },
      // For /metrics: how all sessions are, and what of the platform's quota is used.
      { keys: ["dirty", "deadlines", "expiries", "due"], commands: "zrange zcard" },
      { keys: ["platformCalls"], commands: "get" },
      { keys: ["histories"], commands: "llen lrange" },
      { keys: ["outboxes"], commands: "llen lindex lrange" },
      { keys: ["cards"], commands: "hget" },
      { keys: ["approvals", "said"], commands: "hget hmget" },
      { keys: ["pending"], commands: "zrange" },
      { keys: ["expiries"], commands: "zrangebyscore" },
      { keys: ["rules"], commands: "hget hmget" },
      { keys: ["rulesRevoked"], commands: "hmget" },
      { keys: ["rulesByExpiry"], commands: "zrangebyscore" },
      { keys: ["memoryIndexes"], commands: "zcard" },
      { keys: ["spending"], commands: "zscore zmscore zrevrangebyscore" },
      { keys: ["everyRunner"], commands: "hgetall unlink" },
      { keys: ["runnerNames"], commands: "smembers srem" },
      { keys: ["toolOwners"], commands: "hgetall hdel" },
      { keys: ["alive"], commands: "get exists" },
      { keys: ["present"], commands: "zrange" },
      // For "Why no answer?": traces, and the ledgers that say where a message stands.
      { keys: ["traceLines", "traceNames", "oldTraces"], commands: "lrange" },
      { keys: ["traceRecords"], commands: "get" },
      { keys: ["runLists"], commands: "llen lrange" },
      { keys: ["usage"], commands: "hgetall zrevrange" },
      { keys: ["ratings"], commands: "hgetall" },
      { keys: ["ratingsByTime"], commands: "zrevrange" },
      { keys: ["names"], commands: "hmget hscan" },
      { keys: ["oldTraceIndexes"], commands: "zrevrange" },
      { keys: ["seen"], commands: "get" },
      { keys: ["calls"], commands: "hgetall" },
      { keys: ["due"], commands: "zscore" },
      { keys: ["events"], commands: "xrange" },
      { keys: ["turnQueue", "toolQueues"], commands: tendQueue },
      // Finding sessions.
      { keys: ["ended"], commands: "zrevrange" },
      { keys: ["people"], commands: "zrangebylex" },
      // What was given up.
      { keys: ["letters"], commands: "hget hmget hexists" },
      { keys: ["lettersByTime"], commands: "zrevrangebyscore zcount" },
      // How long an access token is good for; not the token.
      { keys: ["tokens"], commands: "pttl" },
      { keys: ["instances"], commands: "hgetall" },
      { keys: ["eventWatches"], commands: "get" },
    ],
    publishes: [],
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
      ...forgetting,
      { keys: ["forgottenMemories"], commands: "del" },
      { keys: ["sessions"], commands: "hget hset hincrby" },
      { keys: ["states"], commands: "hset hdel" },
      { keys: ["inboxes"], commands: "lindex lrem" },
      { keys: ["parked"], commands: "get unlink" },
      { keys: ["requests"], commands: "rpush" },
      { keys: ["dirty"], commands: "zadd" },
      { keys: ["events"], commands: "xadd pexpire" },
      { keys: ["folders"], commands: "hgetall hdel" },
      { keys: ["histories"], commands: "lset" },
      { keys: ["writers"], commands: "hdel" },
      { keys: ["people"], commands: "zrangebylex" },
      { keys: ["keptApprovals"], commands: "zrem" },
      { keys: ["approvals", "said"], commands: "hget hmget" },
      { keys: ["approvalSessions"], commands: "unlink" },
      { keys: ["pending"], commands: "zrange" },
      { keys: ["rules"], commands: "hget hmget hdel" },
      { keys: ["rulesRevoked"], commands: "hexists hmget hsetnx hdel" },
      { keys: ["rulesByExpiry"], commands: "zrangebyscore zrem" },
      { keys: ["rulesOfChats"], commands: "zrem zscore" },
      { keys: ["letters"], commands: "hmget hdel" },
      { keys: ["lettersByTime"], commands: "zrevrangebyscore zrem" },
      { keys: ["ingressLookups", "workerLookups"], commands: "get del" },
      { keys: ["blobs"], commands: "unlink" },
      { keys: ["runLists"], commands: "llen lrange lset" },
      { keys: ["usage"], commands: "zrem" },
      { keys: ["ratings"], commands: "hget hgetall unlink" },
      { keys: ["ratingsByTime"], commands: "zrange zrevrange zrem" },
      { keys: ["ratedReplies"], commands: "hscan hdel" },
      { keys: ["names"], commands: "hmget hdel" },
      { keys: ["namesByTime"], commands: "zrem" },
      { keys: ["turnQueue", "toolQueues"], commands: eraseJobs },
      { keys: ["audits"], commands: "xrange xadd" },
      { keys: ["everyRunner"], commands: "hgetall unlink" },
      { keys: ["runnerNames"], commands: "smembers srem" },
      { keys: ["toolOwners"], commands: "hgetall hdel" },
      { keys: ["alive"], commands: "get exists" },
      { keys: ["present"], commands: "zrange" },
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
