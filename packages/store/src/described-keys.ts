/** A key, or the beginning of one, as keys.md shows it: `<ns>` is the namespace, `<c>` a cell, `<s>` a session. */
interface DescribedKey {
  key: string;
  type: string;
  content: string;
}

/**
 * Everything that is in Redis, for people. `npm run doc-tables` writes it into keys.md beside this file, and a
 * test holds it to the keys that the stores use.
 */
export const describedKeys: readonly DescribedKey[] = [
  {
    key: "`{<ns>:<c>}:s:<s>`",
    type: "hash",
    content:
      "`state`, last `generation`, counters `seq` (messages) and `eventSeq`, batch of events published last `lastBatch`, open questions `asks`, `outboxLease` with `outboxLeaseUntil`, `outboxRetryAt`",
  },
  {
    key: "`{<ns>:<c>}:state:<s>`",
    type: "hash",
    content:
      "written by workers only: `runningGeneration`, `epoch`, head message `headSeq`, runs that failed by their own code `failures` (JSON, by way), deaths of its workers beside others `deaths` and alone `deathsAlone`, the head whose run was broken off `brokenOff`, runs that Redis failed `uncounted`, whether it runs `alone`, the worker that `lost` it, what its checkpoint `needs`, who `waits` at the head for people only, turns set aside `asides` `aside:…` `waits:<person>`, `owner`, checkpoint `turn`, messages that joined the turn `absorbed`, context (`contextStart` in the history, `summary`, `contextVersion`), messages removed from the history `historyBase`, `settings`, what its runs have used `totals`; `turn`, `summary` and `settings` are sealed",
  },
  { key: "`{<ns>:<c>}:in:<s>`", type: "list", content: "waiting messages as `seq:message`" },
  { key: "`{<ns>:<c>}:ctl:<s>`", type: "list", content: "unread control entries; written by workers only" },
  { key: "`{<ns>:<c>}:req:<s>`", type: "list", content: "cancels and decisions that no worker has taken over yet" },
  {
    key: "`{<ns>:<c>}:calls:<s>`",
    type: "hash",
    content: "attempt of a call to `open` or `started`, each with its audit facts, or `done`",
  },
  {
    key: "`{<ns>:<c>}:handoff:<runner>`",
    type: "stream",
    content:
      "entries `e` of a runner about calls of the cell's sessions, each with its MAC `m`; that runner adds them, workers remove them",
  },
  {
    key: "`{<ns>:<c>}:begun:<runner>:<ask>`",
    type: "string",
    content: "the answer to one question of a runner; 10 minutes",
  },
  { key: "`{<ns>}:handoff-runners`", type: "set", content: "runners that calls were handed out to" },
  {
    key: "`{<ns>:<c>}:h:<s>`",
    type: "list",
    content: "the conversation, append-only; of its compacted part the last `historyMessages`",
  },
  { key: "`{<ns>:<c>}:who:<s>`", type: "hash", content: "who has written in the session, and in what kind of chat" },
  {
    key: "`{<ns>:<c>}:children:<s>`",
    type: "hash",
    content:
      "sessions of helpers at work below a root to their agent and run; `steps <run>`: model steps of all helpers of a run",
  },
  {
    key: "`{<ns>:<c>}:ended-children:<s>`",
    type: "sorted set",
    content: "sessions of helpers below a root by the time of their end; 24 h, at most 500",
  },
  {
    key: "`{<ns>:<c>}:ev:<s>`",
    type: "stream",
    content: "batches of events, by the number of their last event; 24 h after the last one, about 2,000 batches",
  },
  { key: "`{<ns>:<c>}:ch:<s>`", type: "channel", content: "the same batches, live" },
  { key: "`{<ns>:<c>}:ob:<s>`", type: "list", content: "unsent replies" },
  {
    key: "`{<ns>:<c>}:cards:<s>`",
    type: "hash",
    content:
      "card ledger: reply id to its cards, with the whole card while it has buttons that decide; until the reply is sent or abandoned",
  },
  { key: "`{<ns>:<c>}:files:<s>`", type: "hash", content: "working folder: path to file; at most 2 MB" },
  {
    key: "`{<ns>:<c>}:seen:<s>:<app>:<message id>`",
    type: "string",
    content: "number of a taken message, 0 for a refused one; 24 h",
  },
  {
    key: "`{<ns>:<c>}:parked:<s>:<message id>`",
    type: "string",
    content: "a parked message; 24 h, or until it is released",
  },
  {
    key: "`{<ns>:<c>}:recalled:<app>:<message id>`",
    type: "string",
    content: "a message that was taken back, in every cell; 24 h",
  },
  {
    key: "`{<ns>:<c>}:approval:<s>:<id>`",
    type: "hash",
    content:
      "one approval as it was asked for `approval`, and what scripts need of it; written by workers only; until a week after its expiry",
  },
  {
    key: "`{<ns>:<c>}:said:<s>:<id>`",
    type: "hash",
    content: "its `state` and since when `settledAtMs`, `decisions`, cards `cards` and their lease; the same lifetime",
  },
  { key: "`{<ns>:<c>}:pending:<s>`", type: "sorted set", content: "approvals that wait for a decision, by creation" },
  {
    key: "`{<ns>:<c>}:approvals:<s>`",
    type: "sorted set",
    content: "all kept approvals by the end of their lifetime; at most 200 finished ones",
  },
  {
    key: "`{<ns>:<c>}:dirty`",
    type: "sorted set",
    content: "queued and running sessions by time of their last change",
  },
  { key: "`{<ns>:<c>}:deadlines`", type: "sorted set", content: "`session|call` by deadline, open calls" },
  { key: "`{<ns>:<c>}:due`", type: "sorted set", content: "sessions with unsent replies by time of the next try" },
  {
    key: "`{<ns>:<c>}:open-cards`",
    type: "sorted set",
    content: "`session|reply` by time of the last write to its cards",
  },
  { key: "`{<ns>:<c>}:expiries`", type: "sorted set", content: "`session|approval` by expiry, pending ones" },
  {
    key: "`{<ns>:<c>}:approval-cards`",
    type: "sorted set",
    content: "`session|approval` by time of the next try, where cards do not show the state yet",
  },
  { key: "`{<ns>:<c>}:ended`", type: "sorted set", content: "sessions by the end of their last turn" },
  {
    key: "`{<ns>:<c>}:child-roots`",
    type: "sorted set",
    content: "sessions with helpers that have ended, by the oldest of these ends",
  },
  {
    key: "`{<ns>:<c>}:untended`",
    type: "sorted set",
    content: "the same, for histories not archived and bounded since",
  },
  {
    key: "`{<ns>:<c>}:people`",
    type: "sorted set",
    content: "`person|session` in alphabetical order: who has written where",
  },
  {
    key: "`{<ns>:<c>}:floor`",
    type: "hash",
    content:
      "highest numbers of removed sessions: messages `seq`, generations `generation`, events `eventSeq`, history `historyBase`; kept for good",
  },
  {
    key: "`{<ns>:<c>}:letters`",
    type: "hash",
    content: "`session|letter` to a dead letter, with `|cards` behind it to the cards of its reply",
  },
  {
    key: "`{<ns>:<c>}:letters-by-time`",
    type: "sorted set",
    content: "the same letters by time; both expire 14 days after the newest",
  },
  {
    key: "`{<ns>:<c>}:audit`",
    type: "stream",
    content:
      "audit log of the sessions: kind `k`, session `s`, attempt `c`, facts `f`, runner `r`, result `o`, person `u`",
  },
  {
    key: "`{<ns>}:audit`",
    type: "stream",
    content: "audit log of everything else, such as rules and looks at content",
  },
  { key: "`{<ns>}:state-version`", type: "string", content: "version of the stored form; kept for good" },
  {
    key: "`<ns>:approval:<id>`",
    type: "string",
    content: "session of an approval; no hash tag, so that these spread over a Cluster",
  },
  {
    key: "`{<ns>}:rules:<app>`",
    type: "hash",
    content: "permission rules, revoked ones included, until 30 days after their expiry",
  },
  { key: "`{<ns>}:rules-revoked:<app>`", type: "hash", content: "rule to who has revoked it, and when" },
  { key: "`{<ns>}:rules-by-expiry:<app>`", type: "sorted set", content: "the same rules by expiry" },
  { key: "`{<ns>}:rules-of-chat:<app>:<chat>`", type: "sorted set", content: "valid rules of one chat by expiry" },
  { key: "`{<ns>}:approved:<app>:<kind>`", type: "set", content: "approvals of one kind, for 90 days after the last" },
  {
    key: "`{<ns>:memory:<owner>}:all`",
    type: "sorted set",
    content: "memories of a person or chat by last use; the owner is a hash",
  },
  {
    key: "`{<ns>:memory:<owner>}:of:<tenant>.<id>`",
    type: "hash",
    content: "one memory: `text`, `by`, `atMs`, `usedAtMs`, `uses`; `retention.memoryDays` after its last use",
  },
  {
    key: "`{<ns>:memory:<owner>}:forgotten`",
    type: "sorted set",
    content: "ids of memories that were taken away, so that no repeated call writes them again; a day",
  },
  { key: "`{<ns>:memory:<owner>}:off`", type: "string", content: "the person wants nothing remembered" },
  {
    key: "`{<ns>:memory:<owner>}:look-up`",
    type: "string",
    content: "more than 32 memories as a look-up reads them; ten minutes, and removed when one of them is",
  },
  {
    key: "`{<ns>}:runners:<runner>`",
    type: "hash",
    content:
      "instances of a runner: tools, signature, generation, start and expiry; 10 minutes after the last has gone",
  },
  { key: "`{<ns>}:runner-names`", type: "set", content: "runners that have announced themselves" },
  {
    key: "`{<ns>}:tool-owners`",
    type: "hash",
    content: "the runner that a name of a tool, or a prefix ending in `*`, belongs to; written by workers alone",
  },
  { key: "`{<ns>}:runners-changed`", type: "channel", content: "an instance came or went" },
  {
    key: "`{<ns>}:alive:<process>`",
    type: "string",
    content: "the last beat of a worker or runner, and the server that saw its connection; a day",
  },
  {
    key: "`{<ns>}:alive:<process>:left`",
    type: "string",
    content: "the process ended in an orderly way: what it leaves is not counted as its death; 1 hour",
  },
  {
    key: "`{<ns>}:alive:<worker>:stalled`",
    type: "string",
    content: "why the worker ended, from its watchdog: its event loop stood still; 1 day",
  },
  {
    key: "`{<ns>}:alive:<worker>:unexcused:<s>`",
    type: "string",
    content:
      "epoch of a run that the worker could not give back because the session's shard took no writes: its death is none of the message; 1 hour",
  },
  {
    key: "`{<ns>}:present:<group>`",
    type: "sorted set",
    content: "workers, or instances of one runner, by their last beat; dead ones a day",
  },
  {
    key: "`{<ns>}:presence:<process>`",
    type: "channel",
    content: "nothing is published here: a process lives while it listens (a shard channel)",
  },
  {
    key: "`{<ns>}:duty:<name>`",
    type: "string",
    content:
      "the holder of a duty: sweeping, keeping data, an event watch, the canary; until shortly before the next round",
  },
  { key: "`{<ns>}:instances`", type: "hash", content: "instances and their expiry; removed an hour later" },
  { key: "`{<ns>}:event-watch:<app>`", type: "string", content: "result of an app's last event watch, for a day" },
  {
    key: "`{<ns>}:token:<name>`",
    type: "string",
    content: "Feishu access token, as long as Feishu says; a `:lock` for 10 s while a process fetches it",
  },
  {
    key: "`<ns>:look:<owner>:<key>`",
    type: "string",
    content:
      "a looked-up fact of `ingress` or `worker`, such as a name or a language, a sign-in to the `console`, a `reaction` that ingress adds and workers remove, or for whom a vendor keeps a `response`, for 30 days",
  },
  {
    key: "`{<ns>}:orders`",
    type: "stream",
    content: "orders of operators until a worker takes them, at most a minute",
  },
  { key: "`{<ns>}:order-result:<id>`", type: "string", content: "the result of an order; 1 hour" },
  {
    key: "`{<ns>}:pauses`",
    type: "hash",
    content: "`agent:<name>` or `tool:<name>` to who has paused it and when, until it works again",
  },
  { key: "`{<ns>}:pauses-changed`", type: "channel", content: "something was paused or works again, for workers" },
  {
    key: "`{<ns>}:agent-versions`",
    type: "hash",
    content:
      "operators' changes of agents: `version:<agent>:<number>`, sealed, the last 50; `head:<agent>`; `revision` counts all, `stamp` is the last one's seal; `refused:...` where a worker found a wrong seal",
  },
  { key: "`{<ns>}:agent-versions-changed`", type: "channel", content: "an agent has a new version, for workers" },
  {
    key: "`{<ns>:blob:<id>}`",
    type: "hash",
    content: "a file or image: `facts` and `bytes`; `retention.blobDays` after it was last stored",
  },
  {
    key: "`{<ns>:trace:<w>}:record:<id>`",
    type: "string",
    content: "what a process has written at once: entries by trace, JSON; `retention.traceDays`",
  },
  {
    key: "`{<ns>:trace:<w>}:names`",
    type: "list",
    content:
      "lines of ingress of ten minutes: a record, the traces in it, and their messages, chats and people; `retention.traceDays`",
  },
  {
    key: "`{<ns>:trace:<w>}:records`",
    type: "list",
    content: "the same of the other processes, without what traces are about; `retention.traceDays`",
  },
  {
    key: "`{<ns>:runs:<w>}:list`",
    type: "list",
    content:
      "a record of each run that ended within ten minutes, JSON of at most 600 bytes, and the messages that show its answer; `retention.traceDays`",
  },
  {
    key: "`{<ns>:usage}:<size>:<number>`",
    type: "hash",
    content:
      "counts of runs, tokens, money and durations of one `minute`, `hour` or `day`; two hours, two days, a month",
  },
  {
    key: "`{<ns>:usage}:<size>:<number>:people-<measure>`",
    type: "sorted set",
    content:
      "the people who have used most in it, by `runs`, `tokens` or `nano` (billionths of a dollar); the same time",
  },
  { key: "`{<ns>:usage}:batch:<id>`", type: "string", content: "what a process has handed in is counted; 10 minutes" },
  {
    key: "`{<ns>:ratings}:of:<run> <person>`",
    type: "hash",
    content: "what a person says of an answer: `rating`, `reason`, times, `facts` of the run; `retention.ratingDays`",
  },
  { key: "`{<ns>:ratings}:by-time`", type: "sorted set", content: "the same by the time of the last word" },
  {
    key: "`{<ns>:rated:<day>}:replies`",
    type: "hash",
    content: "with `feishu.feedback`: messages sent on a day to the run whose answer they show; 14 days",
  },
  { key: "`{<ns>}:names`", type: "hash", content: "names of people and chats by id, at most 50,000" },
  { key: "`{<ns>}:names-by-time`", type: "sorted set", content: "the same ids by the time when they were written" },
  {
    key: "`{<ns>:trace:<c>}:of:<trace id>`, `{<ns>:trace:<c>}:by-<kind>:<id>`",
    type: "list, sorted set",
    content: "traces of the version before, which are only read; `retention.traceDays`",
  },
  {
    key: "`{<ns>:rate:<app>}:bucket:<key>`",
    type: "hash",
    content:
      "of a bucket: end of a pause `pausedUntil`, a lower limit that the platform named, the last grant of the minute; minutes",
  },
  {
    key: "`{<ns>:rate:<app>}:bucket:<key>:second`, `:minute`",
    type: "sorted set",
    content: "the calls of the present window, by the time when their places end",
  },
  {
    key: "`{<ns>:rate:<app>}:requests:<hash of the caller>`",
    type: "string",
    content: "pace of the requests of a caller; a minute",
  },
  { key: "`{<ns>:rate:<app>}:calls:<month>`", type: "string", content: "calls of a month; 62 days" },
  {
    key: "`{<ns>:budget}:tokens:<kind>:<period>`, `{<ns>:budget}:usd:<kind>:<period>`",
    type: "sorted set",
    content: "spender to tokens, or to billionths of a dollar; until a day after the period",
  },
  { key: "`{<ns>:budget}:charge:<turn>:<epoch>:<n>`", type: "string", content: "a counted model call; 10 minutes" },
  {
    key: "`{<ns>:budget}:told:<kind>:<period>`",
    type: "set",
    content: "spenders who were warned; until a day after the period",
  },
  { key: "`{<ns>}:cancel`", type: "channel", content: "a turn must stop now, for workers" },
  {
    key: "`{<ns>}:cancel:<runner>`",
    type: "channel",
    content: "calls of this runner must stop: their turn was cancelled or reset",
  },
  {
    key: "`{<ns>}:handoff`, `{<ns>}:handoff:<worker>`",
    type: "channel",
    content:
      "a runner has handed something in: for all workers, or for the one that handed out the call, perhaps with the entry",
  },
  {
    key: "`{<ns>}:begun:<runner>`",
    type: "channel",
    content: "answers to a runner's questions whether a call may start",
  },
  {
    key: "`{<ns>:warm-up:<c>}:…`",
    type: "as above",
    content: "messages that a starting ingress sends itself; a minute",
  },
  {
    key: "`{<ns>}:turns:…`, `{<ns>}:tools-<runner>:…`",
    type: "BullMQ",
    content: "the queues, prefix `{<ns>}`; 200 newest done, 1,000 failed, 14 days",
  },
];
