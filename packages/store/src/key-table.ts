/**
 * Everything that is in Redis, a row for each kind of key. From this table are made the functions that name keys
 * (keys.ts), what each app's user may do with them (rights/app-users.ts) and the document keys.md (`npm run doc-tables`).
 */

/** The users that a deployment has, in short. */
export type App = "ingress" | "worker" | "runner" | "console" | "admin";

/**
 * What apps do with keys: commands of Redis, separated by blanks; of a channel `publish` and `subscribe`.
 * A script runs with the rights of its caller, so these are the commands of an app's scripts, too.
 */
export type Rights = Readonly<Partial<Record<App, string>>>;

/** A kind of key, or of channel. */
export interface KeyRow {
  /**
   * Its form: `<ns>` is the namespace, `<c>` a cell, `<s>` a session. The keyspace has a text under the row's name, or a
   * function of what its caller does not know yet. A runner's user has only the keys with its own name as `<runner>`.
   */
  readonly key: string;
  readonly type:
    | "string"
    | "hash"
    | "list"
    | "set"
    | "sorted set"
    | "stream"
    | "channel"
    | "BullMQ"
    | "of each type";
  readonly content: string;
  /** How long it is kept; as long as its session if absent. */
  readonly retention?: string;
  readonly rights?: Rights;
  /** Rights to some of these keys only, by their form. */
  readonly some?: Readonly<Record<string, Rights>>;
}

/** What other keys begin with: scripts put them together. No key has this name itself. */
interface Prefix {
  readonly key: string;
  readonly type: "prefix";
}

/* ---- What BullMQ does with the keys of a queue, by what is asked of it ---- */

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

/* ---- The table ---- */

/** Rows in groups: a group is named at once, as what scripts take. */
export const keyTable = {
  /** The indexes of a cell: what sweepers look at. */
  cell: {
    dirty: {
      key: "{<ns>:<c>}:dirty",
      type: "sorted set",
      content: "queued and running sessions by time of their last change",
      rights: {
        ingress: "zadd",
        worker: "zadd zrangebyscore zrem",
        console: "zcard zrange",
        admin: "zadd zrem",
      },
    },
    deadlines: {
      key: "{<ns>:<c>}:deadlines",
      type: "sorted set",
      content: "`session|call` by deadline, open calls",
      rights: { worker: "zadd zrangebyscore zrem", console: "zcard zrange", admin: "zrem" },
    },
    due: {
      key: "{<ns>:<c>}:due",
      type: "sorted set",
      content: "sessions with unsent replies by time of the next try",
      rights: {
        ingress: "zadd zrem",
        worker: "zadd zrangebyscore zrem",
        console: "zcard zrange zscore",
        admin: "zrem",
      },
    },
    openCards: {
      key: "{<ns>:<c>}:open-cards",
      type: "sorted set",
      content: "`session|reply` by time of the last write to its cards",
      rights: { ingress: "zadd zrem", worker: "zadd zrangebyscore zrem", admin: "zrem" },
    },
    expiries: {
      key: "{<ns>:<c>}:expiries",
      type: "sorted set",
      content: "`session|approval` by expiry, pending ones",
      rights: {
        ingress: "zrem",
        worker: "zadd zrangebyscore zrem",
        console: "zcard zrange zrangebyscore",
        admin: "zrem",
      },
    },
    approvalCards: {
      key: "{<ns>:<c>}:approval-cards",
      type: "sorted set",
      content: "`session|approval` by time of the next try, where cards do not show the state yet",
      rights: { ingress: "zadd", worker: "zadd zrangebyscore zrem zscore", admin: "zrem" },
    },
    ended: {
      key: "{<ns>:<c>}:ended",
      type: "sorted set",
      content: "sessions by the end of their last turn",
      rights: {
        worker: "zadd zcard zrange zrangebyscore zrem zscore",
        console: "zrevrange",
        admin: "zrem",
      },
    },
    childRoots: {
      key: "{<ns>:<c>}:child-roots",
      type: "sorted set",
      content: "sessions with helpers that have ended, by the oldest of these ends",
      rights: { worker: "zadd zrangebyscore zrem", admin: "zrem" },
    },
    untended: {
      key: "{<ns>:<c>}:untended",
      type: "sorted set",
      content: "the same, for histories not archived and bounded since",
      rights: { worker: "zadd zcard zrange zrangebyscore zrem zscore", admin: "zrem" },
    },
    people: {
      key: "{<ns>:<c>}:people",
      type: "sorted set",
      content: "`person|session` in alphabetical order: who has written where",
      rights: {
        ingress: "zadd",
        worker: "zadd zrem",
        console: "zrangebylex",
        admin: "zrangebylex zrem",
      },
    },
    highest: {
      key: "{<ns>:<c>}:floor",
      type: "hash",
      content:
        "highest numbers of removed sessions: messages `seq`, generations `generation`, events `eventSeq`, history `historyBase`",
      retention: "kept for good",
      rights: {
        ingress: "hmget",
        worker: "hdel hget hgetall hmget hset hsetnx",
        admin: "hmget hset",
      },
    },
    letters: {
      key: "{<ns>:<c>}:letters",
      type: "hash",
      content:
        "`session|letter` to a dead letter, with `|cards` behind it to the cards of its reply",
      rights: {
        ingress: "hdel hset pexpire",
        worker: "hdel hexists hget hmget hset pexpire",
        console: "hexists hget hmget",
        admin: "hdel hmget",
      },
    },
    lettersByTime: {
      key: "{<ns>:<c>}:letters-by-time",
      type: "sorted set",
      content: "the same letters by time; both expire 14 days after the newest",
      rights: {
        ingress: "pexpire zadd zcard zrange zrangebyscore zrem",
        worker: "pexpire zadd zcard zrange zrangebyscore zrem",
        console: "zcount zrevrangebyscore",
        admin: "zrem zrevrangebyscore",
      },
    },
    audit: {
      key: "{<ns>:<c>}:audit",
      type: "stream",
      content:
        "audit log of the sessions: kind `k`, session `s`, attempt `c`, facts `f`, runner `r`, result `o`, person `u`",
      rights: { ingress: "xadd", worker: "xadd xlen xrange xtrim", admin: "xadd xrange" },
    },
    recalledOf: {
      key: "{<ns>:<c>}:recalled:<app>:<message id>",
      type: "string",
      content: "a message that was taken back, in every cell",
      retention: "24 h",
      rights: { ingress: "exists mget set", worker: "mget" },
    },
    handoffOf: {
      key: "{<ns>:<c>}:handoff:<runner>",
      type: "stream",
      content:
        "entries `e` of a runner about calls of the cell's sessions, each with its MAC `m`; that runner adds them, workers remove them",
      rights: { worker: "xdel xlen xrange", runner: "xadd" },
    },
    answerOf: {
      key: "{<ns>:<c>}:begun:<runner>:<ask>",
      type: "string",
      content:
        "the answer to one question of a runner; behind a blank as whom the call acts, sealed for that runner",
      retention: "10 minutes; with an identity no longer than its call",
      rights: { worker: "get set unlink", runner: "get" },
    },
  },
  /** One session. Scripts take these together with the indexes of its cell. */
  session: {
    session: {
      key: "{<ns>:<c>}:s:<s>",
      type: "hash",
      content:
        "`state`, last `generation`, counters `seq` (messages) and `eventSeq`, batch of events published last `lastBatch`, open questions `asks`, `outboxLease` with `outboxLeaseUntil`, `outboxRetryAt`",
      rights: {
        ingress: "hdel hexists hget hincrby hmget hset",
        worker: "exists hdel hexists hget hgetall hincrby hmget hset hsetnx unlink",
        console: "hget hmget",
        admin: "exists hget hincrby hmget hset unlink",
      },
    },
    state: {
      key: "{<ns>:<c>}:state:<s>",
      type: "hash",
      content:
        "written by workers only: `runningGeneration`, `epoch`, head message `headSeq`, runs that failed by their own code `failures` (JSON, by way), deaths of its workers beside others `deaths` and alone `deathsAlone`, the head whose run was broken off `brokenOff`, runs that Redis failed `uncounted`, whether it runs `alone`, the worker that `lost` it, what its checkpoint `needs`, who `waits` at the head for people only, turns set aside `asides` `aside:…` `waits:<person>`, `owner`, checkpoint `turn`, messages that joined the turn `absorbed`, context (`contextStart` in the history, `summary`, `contextVersion`), messages removed from the history `historyBase`, `settings`, what its runs have used `totals`; `turn`, `summary` and `settings` are sealed",
      rights: {
        ingress: "hget hmget",
        worker: "exists hdel hget hgetall hincrby hmget hset hsetnx unlink",
        console: "hget hmget",
        admin: "exists hdel hget hmget hset unlink",
      },
    },
    inbox: {
      key: "{<ns>:<c>}:in:<s>",
      type: "list",
      content: "waiting messages as `seq:message`",
      rights: {
        ingress: "lindex llen lrange lrem rpush",
        worker: "lindex llen lpop lpush lrange lrem rpush unlink",
        console: "lindex llen lrange",
        admin: "lindex llen lrange lrem unlink",
      },
    },
    control: {
      key: "{<ns>:<c>}:ctl:<s>",
      type: "list",
      content: "unread control entries; written by workers only",
      rights: { worker: "del llen lrange ltrim rpush unlink", admin: "llen lrange unlink" },
    },
    requests: {
      key: "{<ns>:<c>}:req:<s>",
      type: "list",
      content: "cancels and decisions that no worker has taken over yet",
      rights: {
        ingress: "rpush",
        worker: "del llen lrange rpush unlink",
        admin: "llen rpush unlink",
      },
    },
    calls: {
      key: "{<ns>:<c>}:calls:<s>",
      type: "hash",
      content:
        "attempt of a call to `open` or `started`, each with its audit facts, or `done`; `answer <attempt>` to the key of the answer with its identity, `began <attempt>` to when one began that may begin again or look for what it has made",
      rights: {
        worker: "del hget hgetall hkeys hset hsetnx hvals unlink",
        console: "hgetall",
        admin: "hkeys unlink",
      },
    },
    history: {
      key: "{<ns>:<c>}:h:<s>",
      type: "list",
      content: "the conversation, append-only; of its compacted part the last `historyMessages`",
      rights: {
        ingress: "llen",
        worker: "lindex llen lrange ltrim rpush unlink",
        console: "llen lrange",
        admin: "llen lrange lset unlink",
      },
      some: {
        "{<ns>:<c>}:h:api.<s>": { ingress: "lrange" },
      },
    },
    who: {
      key: "{<ns>:<c>}:who:<s>",
      type: "hash",
      content: "who has written in the session, and in what kind of chat",
      rights: {
        ingress: "hsetnx",
        worker: "hgetall hkeys hset hsetnx unlink",
        admin: "hdel hgetall hkeys unlink",
      },
      some: {
        "{<ns>:<c>}:who:api.<s>": { ingress: "hgetall hkeys" },
      },
    },
    children: {
      key: "{<ns>:<c>}:children:<root>",
      type: "hash",
      content:
        "sessions of helpers at work below a root to their agent and run; `steps <run>`: model steps of all helpers of a run",
      rights: {
        ingress: "hgetall hkeys",
        worker: "hdel hget hgetall hincrby hkeys hset unlink",
        console: "hgetall hkeys",
        admin: "hdel hkeys unlink",
      },
    },
    endedChildren: {
      key: "{<ns>:<c>}:ended-children:<root>",
      type: "sorted set",
      content: "sessions of helpers below a root by the time of their end",
      retention: "24 h, at most 500",
      rights: {
        ingress: "zrange",
        worker: "unlink zadd zcard zrange zrangebyscore zrem",
        console: "zrange",
        admin: "unlink zrange zrem",
      },
    },
    events: {
      key: "{<ns>:<c>}:ev:<s>",
      type: "stream",
      content: "batches of events, by the number of their last event",
      retention: "24 h after the last one, about 2,000 batches",
      rights: {
        ingress: "pexpire xadd xrange",
        worker: "pexpire unlink xadd xrange",
        console: "xrange",
        admin: "pexpire unlink xadd",
      },
    },
    channel: {
      key: "{<ns>:<c>}:ch:<s>",
      type: "channel",
      content: "the same batches, live",
      rights: { ingress: "publish subscribe unsubscribe", worker: "publish", admin: "publish" },
    },
    outbox: {
      key: "{<ns>:<c>}:ob:<s>",
      type: "list",
      content: "unsent replies",
      rights: {
        ingress: "lindex llen lpop lset rpush",
        worker: "lindex llen lpop lset rpush unlink",
        console: "lindex llen lrange",
        admin: "llen unlink",
      },
    },
    cards: {
      key: "{<ns>:<c>}:cards:<s>",
      type: "hash",
      content:
        "card ledger: reply id to its cards, with the whole card while it has buttons that decide",
      retention: "until the reply is sent or abandoned",
      rights: {
        ingress: "exists hdel hget hset",
        worker: "exists hdel hget hkeys hlen hset unlink",
        console: "hget",
        admin: "hkeys hlen unlink",
      },
    },
    files: {
      key: "{<ns>:<c>}:files:<s>",
      type: "hash",
      content: "working folder: path to file; at most 2 MB",
      rights: {
        worker: "del hdel hget hgetall hkeys hlen hset hstrlen unlink",
        admin: "hdel hgetall unlink",
      },
    },
    seenOf: {
      key: "{<ns>:<c>}:seen:<s>:<app>:<message id>",
      type: "string",
      content: "number of a taken message, 0 for a refused one",
      retention: "24 h",
      rights: { ingress: "del get mget set", worker: "del get mget set", console: "get" },
    },
    parkedOf: {
      key: "{<ns>:<c>}:parked:<s>:<message id>",
      type: "string",
      content: "a parked message",
      retention: "24 h, or until it is released",
      rights: { ingress: "del get set", worker: "del get set", admin: "get unlink" },
    },
    approvalOf: {
      key: "{<ns>:<c>}:approval:<s>:<id>",
      type: "hash",
      content:
        "one approval as it was asked for `approval`, and what scripts need of it; written by workers only",
      retention: "until a week after its expiry",
      rights: {
        ingress: "hget hmget pexpireat",
        worker: "del exists hdel hget hgetall hmget hset hsetnx pexpireat pttl unlink",
        console: "hget hmget",
        admin: "hget hmget unlink",
      },
    },
    approvals: { key: "{<ns>:<c>}:approval:<s>", type: "prefix" },
    saidOf: {
      key: "{<ns>:<c>}:said:<s>:<id>",
      type: "hash",
      content:
        "its `state` and since when `settledAtMs`, `decisions`, cards `cards` and their lease",
      retention: "the same lifetime",
      rights: {
        ingress: "hdel hget hincrby hmget hset hsetnx pexpireat",
        worker: "del exists hdel hget hgetall hincrby hmget hset hsetnx pexpire pexpireat unlink",
        console: "hget hmget",
        admin: "hget hmget unlink",
      },
    },
    said: { key: "{<ns>:<c>}:said:<s>", type: "prefix" },
    pending: {
      key: "{<ns>:<c>}:pending:<s>",
      type: "sorted set",
      content: "approvals that wait for a decision, by creation",
      rights: {
        ingress: "zrange zrem",
        worker: "unlink zadd zcard zrange zrem zscore",
        console: "zrange",
        admin: "unlink zcard zrange",
      },
    },
    kept: {
      key: "{<ns>:<c>}:approvals:<s>",
      type: "sorted set",
      content: "all kept approvals by the end of their lifetime; at most 200 finished ones",
      rights: {
        worker: "pexpireat unlink zadd zcard zrange zrem zremrangebyscore zrevrange",
        admin: "unlink zrange zrem",
      },
    },
  },
  /** Permission rules of one app; in the slot of the audit log outside the cells. */
  rules: {
    rules: {
      key: "{<ns>}:rules:<app>",
      type: "hash",
      content: "permission rules, revoked ones included, until 30 days after their expiry",
      rights: {
        ingress: "hget hmget",
        worker: "hdel hget hmget hsetnx",
        console: "hget hmget",
        admin: "hdel hget hmget",
      },
    },
    revoked: {
      key: "{<ns>}:rules-revoked:<app>",
      type: "hash",
      content: "rule to who has revoked it, and when",
      rights: {
        ingress: "hmget hsetnx",
        worker: "hdel hmget hsetnx",
        console: "hmget",
        admin: "hdel hexists hmget hsetnx",
      },
    },
    byExpiry: {
      key: "{<ns>}:rules-by-expiry:<app>",
      type: "sorted set",
      content: "the same rules by expiry",
      rights: {
        worker: "zadd zrangebyscore zrem",
        console: "zrangebyscore",
        admin: "zrangebyscore zrem",
      },
    },
    ofChat: {
      key: "{<ns>}:rules-of-chat:<app>:<chat>",
      type: "sorted set",
      content: "valid rules of one chat by expiry",
      rights: {
        ingress: "zrangebyscore zscore",
        worker: "pexpireat zadd zrangebyscore zrem zremrangebyscore zrevrange zscore",
        admin: "zrem zscore",
      },
    },
    approved: {
      key: "{<ns>}:approved:<app>:<kind>",
      type: "set",
      content: "approvals of one kind, for 90 days after the last",
      rights: { worker: "pexpire sadd scard" },
    },
  },
  /** What is remembered of one person or chat, in all tenants; in a slot of its own. `<owner>` is a hash, so that no name of a person is in a key. */
  memories: {
    memories: {
      key: "{<ns>:memory:<owner>}:all",
      type: "sorted set",
      content: "memories of a person or chat by last use; the owner is a hash",
      rights: {
        ingress: "zrange zrem",
        worker: "persist pexpire zadd zrange zrem",
        console: "zcard",
        admin: "zrange zrem",
      },
    },
    memoryOf: {
      key: "{<ns>:memory:<owner>}:of:<tenant.id>",
      type: "hash",
      content: "one memory: `text`, `by`, `atMs`, `usedAtMs`, `uses`",
      retention: "`retention.memoryDays` after its last use",
      rights: {
        ingress: "del hmget",
        worker: "del exists hincrby hmget hset persist pexpire pttl",
        admin: "del hmget",
      },
    },
    memory: { key: "{<ns>:memory:<owner>}:of", type: "prefix" },
    forgotten: {
      key: "{<ns>:memory:<owner>}:forgotten",
      type: "sorted set",
      content: "ids of memories that were taken away, so that no repeated call writes them again",
      retention: "a day",
      rights: {
        ingress: "pexpire zadd zremrangebyscore",
        worker: "pexpire zadd zremrangebyscore zscore",
        admin: "del pexpire zadd zremrangebyscore",
      },
    },
    off: {
      key: "{<ns>:memory:<owner>}:off",
      type: "string",
      content: "the person wants nothing remembered",
      rights: { ingress: "del exists set", worker: "del exists set", admin: "del exists set" },
    },
    lookUp: {
      key: "{<ns>:memory:<owner>}:look-up",
      type: "string",
      content: "more than 32 memories as a look-up reads them",
      retention: "ten minutes, and removed when one of them is",
      rights: { ingress: "del", worker: "del get set", admin: "del" },
    },
  },
  /** Traces of ten minutes. */
  traceWindow: {
    recordOf: {
      key: "{<ns>:trace:<w>}:record:<id>",
      type: "string",
      content: "what a process has written at once: entries by trace, JSON",
      retention: "`retention.traceDays`",
      rights: { ingress: "set", worker: "set", runner: "set", console: "get" },
    },
    names: {
      key: "{<ns>:trace:<w>}:names",
      type: "list",
      content:
        "lines of ingress of ten minutes: a record, the traces in it, and their messages, chats and people",
      retention: "`retention.traceDays`",
      rights: { ingress: "pexpire rpush", console: "lrange" },
    },
    records: {
      key: "{<ns>:trace:<w>}:records",
      type: "list",
      content: "the same of the other processes, without what traces are about",
      retention: "`retention.traceDays`",
      rights: {
        ingress: "pexpire rpush",
        worker: "pexpire rpush",
        runner: "pexpire rpush",
        console: "lrange",
      },
    },
  },
  /** How people have rated answers; in one slot. */
  ratings: {
    ratingOf: {
      key: "{<ns>:ratings}:of:<run> <person>",
      type: "hash",
      content: "what a person says of an answer: `rating`, `reason`, times, `facts` of the run",
      retention: "`retention.ratingDays`",
      rights: {
        ingress: "hmget hset pexpire unlink",
        console: "hgetall",
        admin: "hget hgetall unlink",
      },
    },
    ratings: { key: "{<ns>:ratings}:of", type: "prefix" },
    byTime: {
      key: "{<ns>:ratings}:by-time",
      type: "sorted set",
      content: "the same by the time of the last word",
      rights: {
        ingress: "pexpire zadd zcard zrange zrem zremrangebyscore",
        console: "zrevrange",
        admin: "zrange zrem zrevrange",
      },
    },
  },
  /** Everything else. What is in one slot has one hash tag: scripts take several of them at once. What spreads over the nodes has none, or one of its own. */
  whole: {
    audit: {
      key: "{<ns>}:audit",
      type: "stream",
      content: "audit log of everything else, such as rules and looks at content",
      rights: { ingress: "xadd", worker: "xadd xlen xrange xtrim", admin: "xadd xrange" },
    },
    approvalSessionOf: {
      key: "<ns>:approval:<id>",
      type: "string",
      content: "session of an approval; no hash tag, so that these spread over a Cluster",
      rights: { ingress: "get", worker: "get set", admin: "unlink" },
    },
    lookupOf: {
      key: "<ns>:look:<owner>:<key>",
      type: "string",
      content:
        "a looked-up fact of `ingress` or `worker`, such as a name or a language, a sign-in to the `console`, a `reaction` that ingress adds and workers remove, or for whom a vendor keeps a `response`, for 30 days, the time `zone` of a person, for 90 days, and when a session with such was deleted",
      some: {
        "<ns>:look:ingress:<key>": { ingress: "del get getdel set", admin: "del get" },
        "<ns>:look:worker:<key>": { worker: "del get getdel set", admin: "del get" },
        "<ns>:look:console:<key>": { console: "del get set" },
        "<ns>:look:reaction:<key>": { ingress: "del get getdel set", worker: "del get getdel set" },
        "<ns>:look:response:<key>": { ingress: "get", worker: "set", admin: "set" },
        "<ns>:look:zone:<key>": { ingress: "set", worker: "get", admin: "del" },
      },
    },
    blobOf: {
      key: "{<ns>:blob:<id>}",
      type: "hash",
      content: "a file or image: `facts` and `bytes`",
      retention: "`retention.blobDays` after it was last stored",
      rights: { worker: "hmget hset pexpire", runner: "hset pexpire", admin: "unlink" },
    },
    orders: {
      key: "{<ns>}:orders",
      type: "stream",
      content: "orders of operators until a worker takes them, at most a minute",
      rights: { worker: "xdel xrange", console: "xadd xdel" },
    },
    orderResultOf: {
      key: "{<ns>}:order-result:<id>",
      type: "string",
      content: "the result of an order",
      retention: "1 hour",
      rights: { worker: "set", console: "get" },
    },
    pauses: {
      key: "{<ns>}:pauses",
      type: "hash",
      content:
        "`agent:<name>` or `tool:<name>` to who has paused it and when, until it works again",
      rights: { worker: "hdel hexists hgetall hlen hset", console: "hgetall" },
    },
    pausesChanged: {
      key: "{<ns>}:pauses-changed",
      type: "channel",
      content: "something was paused or works again, for workers",
      rights: { worker: "publish subscribe unsubscribe" },
    },
    agentVersions: {
      key: "{<ns>}:agent-versions",
      type: "hash",
      content:
        "operators' changes of agents: `version:<agent>:<number>`, sealed, the last 50; `head:<agent>`; `revision` counts all, `stamp` is the last one's seal; `refused:...` where a worker found a wrong seal",
      rights: {
        ingress: "hgetall",
        worker: "hdel hget hgetall hlen hmget hset",
        console: "hgetall",
        admin: "hgetall",
      },
    },
    addedProviders: {
      key: "{<ns>}:added-providers",
      type: "hash",
      content:
        "servers of models that operators have added: `provider:<name>`, sealed, with its key sealed for workers; `sealTo` is the public key of workers; `revision` counts changes, `stamp` is the last one's seal; `refused:<name>` where a worker does not use it",
      rights: {
        worker: "hdel hexists hget hgetall hkeys hmget hset",
        console: "hgetall",
        admin: "hgetall",
      },
    },
    agentVersionsChanged: {
      key: "{<ns>}:agent-versions-changed",
      type: "channel",
      content: "an agent has a new version, or a server of models was changed, for workers",
      rights: { worker: "publish subscribe unsubscribe" },
    },
    names: {
      key: "{<ns>}:names",
      type: "hash",
      content: "names of people and chats by id, at most 50,000",
      rights: { worker: "hdel hmget hset", console: "hmget hscan", admin: "hdel hmget" },
    },
    namesByTime: {
      key: "{<ns>}:names-by-time",
      type: "sorted set",
      content: "the same ids by the time when they were written",
      rights: { worker: "zadd zcard zmscore zrange zremrangebyrank", admin: "zrem" },
    },
    tokenOf: {
      key: "{<ns>}:token:<name>",
      type: "string",
      content:
        "Feishu access token, as long as Feishu says; a `:lock` for 10 s while a process fetches it",
      rights: { ingress: "del get pttl set", worker: "del get pttl set", console: "pttl" },
    },
    grantOf: {
      key: "{<ns>}:grant:<app>:<person>",
      type: "hash",
      content:
        "what a person lets an app do as them: `state`, `generation`, `tenant`, `accessEndsAtMs`, `refreshEndsAtMs`, `grantedAtMs`, scopes `asked` and `granted`, `issuer`, `unionId`, a field `used:<tool>` for each tool that has used it, `refreshError` and `refreshErrorAtMs`, `endReason` and `endedAtMs`, `warnedOf`, and while it is refreshed `leaseHolder` and `leaseUntilMs`; the person is a hash",
      retention: "395 days after the last refresh, 30 days after its end",
      rights: {
        ingress: "hgetall",
        worker: "del exists hdel hexists hget hgetall hincrby hlen hmget hset pexpire",
        console: "hgetall",
        admin: "del hmget",
      },
    },
    grantTokensOf: {
      key: "{<ns>}:grant-tokens:<app>:<person>",
      type: "string",
      content: "the tokens of a grant, sealed; the person is a hash",
      retention:
        "395 days after the last refresh, until the grant ends; of a deleted person until the platform has ended them, a week at most",
      rights: { worker: "del get set", admin: "pexpire" },
    },
    grantTokensEnding: {
      key: "{<ns>}:grant-tokens-ending",
      type: "sorted set",
      content:
        "grants that people or operators have ended or deleted, with their sealed tokens, by the time of the next try to end them at the platform, JSON",
      retention: "until the platform has answered, for a week at most",
      rights: { worker: "zadd zrangebyscore zrem", admin: "zadd" },
    },
    grants: {
      key: "{<ns>}:grants",
      type: "sorted set",
      content: "app and person of each grant by the time when a worker looks after it",
      retention: "as long as the grant",
      rights: {
        worker: "zadd zrangebyscore zrem",
        console: "zcard zrange",
        admin: "zrem",
      },
    },
    grantEnds: {
      key: "{<ns>}:grant-ends",
      type: "set",
      content:
        "grants that have ended at the platform, as its events say, or that their people end, JSON",
      retention: "until a worker has ended them",
      rights: { ingress: "sadd", worker: "smembers srem" },
    },
    schedulesDue: {
      key: "{<ns>}:schedules-due",
      type: "sorted set",
      content: "ids of active schedules by the time when their alarm rings",
      retention: "as long as the schedule",
      rights: { ingress: "zadd zrem zscore", worker: "zadd zrangebyscore zrem", admin: "zrem" },
    },
    schedulesAll: {
      key: "{<ns>}:schedules",
      type: "sorted set",
      content: "ids of schedules by the time when they were made",
      retention: "until the schedule is done or removed",
      rights: {
        ingress: "zadd zrem",
        worker: "zadd zrem",
        console: "zcard zrevrange",
        admin: "zrem",
      },
    },
    scheduleOf: {
      key: "{<ns>}:schedule:<id>",
      type: "hash",
      content:
        "a schedule: `schedule` as JSON, `state`, `why` it is paused, `dueMs`, `claimedMs`, `generation`, `failures`, `endedMs`, `missed` and `missedRun`, and the subscription that it `waits` for",
      retention: "until it is removed; 30 days after it is done",
      rights: {
        ingress: "del exists hdel hget hgetall hmget hset",
        worker: "del exists hdel hget hgetall hincrby hmget hset hsetnx pexpire",
        console: "hgetall",
        admin: "del hget hgetall",
      },
    },
    scheduleRows: { key: "{<ns>}:schedule", type: "prefix" },
    schedulesOf: {
      key: "{<ns>}:schedules-of:<app>:<owner>",
      type: "set",
      content: "ids of the schedules of a person or chat; the owner is a hash",
      retention: "until these are done or removed",
      rights: {
        ingress: "sadd scard smembers srem",
        worker: "sadd scard smembers srem",
        admin: "smembers srem",
      },
    },
    scheduleLogOf: {
      key: "{<ns>}:schedule-log:<id>",
      type: "list",
      content: "what became of the last 100 instants at which a schedule was due",
      retention: "as long as the schedule",
      rights: {
        ingress: "del lpush lrange ltrim",
        worker: "del lpush lrange ltrim pexpire",
        console: "lrange",
        admin: "del",
      },
    },
    scheduleHeldOf: {
      key: "{<ns>}:schedule-held:<id>",
      type: "hash",
      content: "at most 20 events that quiet hours have held for a schedule, JSON by their ids",
      retention: "until they run",
      rights: { ingress: "del hexists hlen hset", worker: "del hdel hlen hvals", admin: "del" },
    },
    subscriptions: {
      key: "{<ns>}:subscriptions",
      type: "sorted set",
      content:
        "app, tenant, person and event of each subscription that schedules need or have needed, by the time when a worker looks at it, JSON",
      retention: "until no schedule needs it, and the platform has ended it",
      rights: { ingress: "zadd", worker: "zadd zrangebyscore zrem zscore", admin: "zadd" },
    },
    subscriptionsOf: {
      key: "{<ns>}:subscriptions-of:<app>:<person>",
      type: "hash",
      content: "where the subscriptions of a person stand, JSON by event; the person is a hash",
      retention: "until no schedule needs them, and the platform has ended them",
      rights: { ingress: "hgetall", worker: "hdel hgetall hkeys hset" },
    },
    subscriptionsLacking: {
      key: "{<ns>}:subscriptions-lacking",
      type: "set",
      content: "subscriptions that schedules need and that are not there, as in `subscriptions`",
      retention: "as long as that is so",
      rights: { worker: "sadd scard srandmember srem", admin: "scard srandmember" },
    },
    consentOf: {
      key: "{<ns>}:consent:<app>:<person>",
      type: "string",
      content:
        "JSON: the question to a person whether the app may act as them: the calls that wait for it, its link, the sealed device code; the person is a hash",
      retention: "until the last call waits no more, 8 days after its last change at most",
      rights: { worker: "del get set" },
    },
    consentStateOf: {
      key: "{<ns>}:consent-state:<app>:<id>",
      type: "string",
      content:
        "JSON: digest of the `state` with which a person's consent may come back to ingress, and whose card waits for it; of the code flow",
      retention: "10 minutes; until its consent ends or another link is asked for",
      rights: { ingress: "get", worker: "set unlink" },
    },
    consentCodeOf: {
      key: "{<ns>}:consent-code:<app>:<id>",
      type: "string",
      content:
        "JSON: the code of the consent page, which is good for nothing without the sealed verifier, or that the person has refused",
      retention: "10 minutes; until its consent ends or another link is asked for",
      rights: { ingress: "set", worker: "get unlink" },
    },
    eventWatchOf: {
      key: "{<ns>}:event-watch:<app>",
      type: "string",
      content: "result of an app's last event watch, for a day",
      rights: { ingress: "get set", console: "get" },
    },
    aliveOf: {
      key: "{<ns>}:alive:<process>",
      type: "string",
      content: "the last beat of a worker or runner, and the server that saw its connection",
      retention: "a day",
      rights: { worker: "del exists get mget set", console: "exists get", admin: "exists get" },
      some: {
        "{<ns>}:alive:runner:<runner>:<process>": { runner: "del exists get set" },
      },
    },
    leftOf: {
      key: "{<ns>}:alive:<process>:left",
      type: "string",
      content: "the process ended in an orderly way: what it leaves is not counted as its death",
      retention: "1 hour",
      rights: { worker: "del exists get mget set", console: "exists get", admin: "exists get" },
      some: {
        "{<ns>}:alive:runner:<runner>:<process>:left": { runner: "del exists get set" },
      },
    },
    stalledOf: {
      key: "{<ns>}:alive:<worker>:stalled",
      type: "string",
      content: "why the worker ended, from its watchdog: its event loop stood still",
      retention: "1 day",
      rights: { worker: "del exists get mget set" },
    },
    unexcusedOf: {
      key: "{<ns>}:alive:<worker>:unexcused:<s>",
      type: "string",
      content:
        "epoch of a run that the worker could not give back because the session's shard took no writes: its death is none of the message",
      retention: "1 hour",
      rights: { worker: "mget set" },
    },
    presentOf: {
      key: "{<ns>}:present:<group>",
      type: "sorted set",
      content: "workers, or instances of one runner, by their last beat; dead ones a day",
      some: {
        "{<ns>}:present:workers": {
          worker: "zadd zrange zrangebyscore zrem zremrangebyscore",
          console: "zrange",
          admin: "zrange",
        },
        "{<ns>}:present:runner:<runner>": { runner: "zadd zrangebyscore zrem zremrangebyscore" },
      },
    },
    presenceOf: {
      key: "{<ns>}:presence:<process>",
      type: "channel",
      content: "nothing is published here: a process lives while it listens (a shard channel)",
      some: {
        "{<ns>}:presence:worker-<id>": { worker: "ssubscribe" },
        "{<ns>}:presence:runner:<runner>:<process>": { runner: "ssubscribe" },
      },
    },
    dutyOf: {
      key: "{<ns>}:duty:<name>",
      type: "string",
      content: "the holder of a duty: sweeping, keeping data, an event watch",
      retention: "until shortly before the next round",
      rights: { worker: "set" },
      some: {
        "{<ns>}:duty:event-watch:<app>": { ingress: "set" },
      },
    },
    instances: {
      key: "{<ns>}:instances",
      type: "hash",
      content: "instances and their expiry",
      retention: "removed an hour later",
      rights: { ingress: "hdel hgetall hset", worker: "hdel hgetall hset", console: "hgetall" },
    },
    runnerOf: {
      key: "{<ns>}:runners:<runner>",
      type: "hash",
      content: "instances of a runner: tools, signature, generation, start and expiry",
      retention: "10 minutes after the last has gone",
      rights: {
        worker: "hgetall",
        runner: "hdel hget hset pexpire",
        console: "hgetall unlink",
        admin: "hgetall unlink",
      },
      some: {
        // It looks at what others offer.
        "{<ns>}:runners:<other runner>": { runner: "hgetall hvals" },
      },
    },
    runnerNames: {
      key: "{<ns>}:runner-names",
      type: "set",
      content: "runners that have announced themselves",
      rights: {
        worker: "smembers",
        runner: "sadd smembers",
        console: "smembers srem",
        admin: "smembers srem",
      },
    },
    toolOwners: {
      key: "{<ns>}:tool-owners",
      type: "hash",
      content:
        "the runner that a name of a tool, or a prefix ending in `*`, belongs to; written by workers alone",
      rights: {
        worker: "hdel hgetall hset hsetnx",
        runner: "hgetall",
        console: "hdel hgetall",
        admin: "hdel hgetall",
      },
    },
    lockOf: {
      key: "{<ns>}:locks:<runner>:<object>",
      type: "hash",
      content:
        "which call of a runner changes an object: `holder`, until when, when the next one may begin",
      retention: "a minute after it was last asked for",
      rights: { runner: "hdel hget hincrby hmget hset pexpire" },
    },
    lockWaiting: {
      key: "{<ns>}:locks:<runner>:<object>:waiting",
      type: "sorted set",
      content: "calls that wait for it, by round: their number, ticket and person",
      retention: "as the lock",
      rights: { runner: "pexpire zadd zrange zrank zrem zscore" },
    },
    lockSeen: {
      key: "{<ns>}:locks:<runner>:<object>:seen",
      type: "sorted set",
      content: "the same by the time until which they count as waiting",
      retention: "as the lock",
      rights: { runner: "pexpire zadd zrangebyscore zrem" },
    },
    runnersChanged: {
      key: "{<ns>}:runners-changed",
      type: "channel",
      content: "an instance came or went",
      rights: { worker: "subscribe unsubscribe", runner: "publish subscribe unsubscribe" },
    },
    handoffRunners: {
      key: "{<ns>}:handoff-runners",
      type: "set",
      content: "runners that calls were handed out to",
      rights: { worker: "sadd smembers" },
    },
    cancels: {
      key: "{<ns>}:cancel",
      type: "channel",
      content: "a turn must stop now, for workers",
      rights: { ingress: "publish", worker: "publish subscribe unsubscribe" },
    },
    cancelsOf: {
      key: "{<ns>}:cancel:<runner>",
      type: "channel",
      content: "calls of this runner must stop: their turn was cancelled or reset",
      rights: { worker: "publish", runner: "subscribe unsubscribe" },
    },
    handoffs: {
      key: "{<ns>}:handoff",
      type: "channel",
      content: "a runner has handed something in, for all workers",
      rights: { worker: "subscribe unsubscribe", runner: "publish" },
    },
    handoffsTo: {
      key: "{<ns>}:handoff:<worker>",
      type: "channel",
      content: "the same for the worker that handed out the call, perhaps with the entry",
      rights: { worker: "subscribe unsubscribe", runner: "publish" },
    },
    answersTo: {
      key: "{<ns>}:begun:<runner>",
      type: "channel",
      content: "answers to a runner's questions whether a call may start",
      rights: { worker: "publish", runner: "subscribe unsubscribe" },
    },
    runsOf: {
      key: "{<ns>:runs:<w>}:list",
      type: "list",
      content:
        "a record of each run that ended within ten minutes, JSON of at most 600 bytes, and the messages that show its answer",
      retention: "`retention.traceDays`",
      rights: { worker: "pexpire rpush", console: "llen lrange", admin: "llen lrange lset" },
    },
    usageOf: {
      key: "{<ns>:usage}:<size>:<number>",
      type: "hash",
      content: "counts of runs, tokens, money and durations of one `minute`, `hour` or `day`",
      retention: "two hours, two days, a month",
      rights: { worker: "hexists hincrby hlen pexpire", console: "hgetall" },
    },
    usageByPerson: {
      key: "{<ns>:usage}:<size>:<number>:people-<measure>",
      type: "sorted set",
      content:
        "the people who have used most in it, by `runs`, `tokens` or `nano` (billionths of a dollar)",
      retention: "the same time",
      rights: {
        worker: "pexpire zcard zincrby zremrangebyrank",
        console: "zrevrange",
        admin: "zrem",
      },
    },
    usageBatchOf: {
      key: "{<ns>:usage}:batch:<id>",
      type: "string",
      content: "what a process has handed in is counted",
      retention: "10 minutes",
      rights: { worker: "set" },
    },
    ratedRepliesOf: {
      key: "{<ns>:rated:<day>}:replies",
      type: "hash",
      content: "with `feishu.feedback`: messages sent on a day to the run whose answer they show",
      retention: "14 days",
      rights: { ingress: "hget", worker: "hset pexpireat", admin: "hdel hscan" },
    },
    rateBucketOf: {
      key: "{<ns>:rate:<app>}:bucket:<key>",
      type: "hash",
      content:
        "of a bucket: end of a pause `pausedUntil`, a lower limit that the platform named, the last grant of the minute",
      retention: "minutes",
      rights: {
        ingress: "hget hmget hset pexpire pttl",
        worker: "hget hmget hset pexpire pttl",
        console: "hmget hset pexpire pttl",
      },
    },
    rateWindowOf: {
      key: "{<ns>:rate:<app>}:bucket:<key>:<window>",
      type: "sorted set",
      content: "the calls of the present `second` or `minute`, by the time when their places end",
      rights: {
        ingress: "pexpire zadd zcard zrange zremrangebyscore zscore",
        worker: "pexpire zadd zcard zrange zremrangebyscore zscore",
        console: "pexpire zadd zcard zrange zremrangebyscore zcount",
      },
      retention: "minutes",
    },
    requestPaceOf: {
      key: "{<ns>:rate:<app>}:requests:<hash of the caller>",
      type: "string",
      content: "pace of the requests of a caller",
      retention: "a minute",
      rights: { ingress: "get set" },
    },
    platformCallsOf: {
      key: "{<ns>:rate:<app>}:calls:<month>",
      type: "string",
      content: "calls of a month",
      retention: "62 days",
      rights: { ingress: "get incr pexpire", worker: "get incr pexpire", console: "get" },
    },
    spentOf: {
      key: "{<ns>:budget}:<measure>:<kind>:<period>",
      type: "sorted set",
      content: "spender to `tokens`, or as `usd` to billionths of a dollar",
      retention: "until a day after the period",
      rights: {
        ingress: "zscore",
        worker: "pexpireat zcard zincrby zremrangebyrank zscore",
        console: "zmscore zrevrangebyscore zscore",
      },
    },
    chargeOf: {
      key: "{<ns>:budget}:charge:<turn and call>",
      type: "string",
      content: "a counted model call",
      retention: "10 minutes",
      rights: { worker: "set" },
    },
    warnedOf: {
      key: "{<ns>:budget}:told:<kind>:<period>",
      type: "set",
      content: "spenders who were warned",
      retention: "until a day after the period",
      rights: { worker: "pexpireat sadd" },
    },
    warmUp: {
      key: "{<ns>:warm-up:<cell>}:<key>",
      type: "of each type",
      content: "messages that a starting ingress sends itself, as those above",
      retention: "a minute",
      rights: { ingress: "hkeys hmget hset hsetnx lindex mget pexpire rpush set zadd" },
    },
    turnQueue: {
      key: "{<ns>}:turns:<key>",
      type: "BullMQ",
      content: "wake-ups of sessions, prefix `{<ns>}`",
      retention: "200 newest done, 1,000 failed, 14 days",
      rights: { ingress: addJobs, worker: workQueue, console: tendQueue, admin: eraseJobs },
    },
    toolQueue: {
      key: "{<ns>}:tools-<runner>:<key>",
      type: "BullMQ",
      content: "calls of the tools of a runner",
      retention: "the same",
      rights: { worker: keepQueue, runner: workQueue, console: tendQueue, admin: eraseJobs },
    },
    limitedQueue: {
      key: "{<ns>}:tools-<runner>.<limit>:<key>",
      type: "BullMQ",
      content: "calls of its tools with limits of their own",
      retention: "the same",
      rights: { worker: keepQueue, runner: workQueue, console: tendQueue, admin: eraseJobs },
    },
  },
} as const satisfies Readonly<Record<string, Readonly<Record<string, KeyRow | Prefix>>>>;

/** The rows, without prefixes. */
export function keyRows(): KeyRow[] {
  return Object.values<Readonly<Record<string, KeyRow | Prefix>>>(keyTable)
    .flatMap((group) => Object.values(group))
    .filter((row): row is KeyRow => row.type !== "prefix");
}

/** Commands that change nothing. */
const reading: ReadonlySet<string> = new Set(
  (
    "exists get hexists hget hgetall hkeys hlen hmget hscan hstrlen hvals lindex llen lpos lrange mget pttl scard smembers " +
    "subscribe ssubscribe type xlen xrange zcard zcount zmscore zrange zrangebylex zrangebyscore zrevrange " +
    "zrevrangebyscore zscore"
  ).split(" "),
);

/** A row as keys.md shows it. */
export interface DescribedKey {
  key: string;
  type: string;
  /** Apps. */
  writtenBy: string[];
  readBy: string[];
  content: string;
}

export function describedKeys(): DescribedKey[] {
  return keyRows().map(({ key, type, content, retention, rights = {}, some = {} }) => {
    const all = [rights, ...Object.values(some)].flatMap((each) => Object.entries(each));
    const appsWhere = (isSo: (command: string) => boolean): string[] => [
      ...new Set(all.filter(([, commands]) => commands.split(" ").some(isSo)).map(([app]) => app)),
    ];
    return {
      key: `\`${key}\``,
      type,
      writtenBy: appsWhere((command) => !reading.has(command)),
      readBy: appsWhere((command) => reading.has(command)),
      content: retention === undefined ? content : `${content}; ${retention}`,
    };
  });
}
