import { isTerminal, turnIdOf, turnJobId, turnsQueue, type EngineEvent, type SessionKey } from "@larkline/protocol";
import type { Backend } from "./backend.ts";
import type { Standing } from "./diagnosis.ts";
import type { MessageTrace } from "./message-trace.ts";

/** Messages behind the head that are looked at: as many as a session takes. */
const maxWaiting = 200;
const pageSize = 500;
/** Events that are read to find the end of a run, which its trace knows as a rule. */
const maxEvents = 5_000;

/** Where a message is: as its trace says, or else where it would have to be. */
async function placeOf(
  { store }: Pick<Backend, "store">,
  { place, app, chat, messageId }: MessageTrace,
): Promise<MessageTrace["place"]> {
  if (place !== undefined) return place;
  if (app === "" || chat === "" || messageId === "") return undefined;
  const session = `${app}.${chat}`;
  const seq = await store.seqOf(session, app, messageId);
  // Answered outside a session, such as a message that came late, it has a number of 0.
  return seq === undefined || seq === 0 ? undefined : { session, seq };
}

/** The last event of a run, as far as its events are kept. */
async function endOf(log: Backend["log"], session: SessionKey, runId: string): Promise<EngineEvent | undefined> {
  let after = 0;
  for (let read = 0; read < maxEvents; read += pageSize) {
    const page = await log.read(session, after, pageSize);
    const end = page.find((record) => record.runId === runId && isTerminal(record.event));
    if (end !== undefined) return end.event;
    const last = page.at(-1);
    if (last === undefined || page.length < pageSize) return undefined;
    after = last.seq;
  }
  return undefined;
}

async function jobOf({ catalog }: Backend, session: SessionKey, gen: number): Promise<Standing["job"]> {
  const job = await catalog.job(turnsQueue, turnJobId(session, gen));
  return job === undefined ? undefined : { state: job.state, addedAtMs: job.addedAtMs };
}

/** Reads from the ledgers how things stand around a message; undefined when no session knows it. */
export async function standingOf(backend: Backend, trace: MessageTrace): Promise<Standing | undefined> {
  const place = await placeOf(backend, trace);
  if (place === undefined) return undefined;
  const { store, approvals, ledgers, presence, directory, catalog, log } = backend;
  const { session, seq } = place;
  const [summary, waiting, ledger, pending, depth, members, runners] = await Promise.all([
    store.summary(session),
    store.waiting(session, maxWaiting),
    ledgers(session),
    approvals.pending(session),
    catalog.depth(turnsQueue),
    presence.members(),
    directory.runners(),
  ]);
  const isOver = trace.entries.some(({ name }) => name === "turn.ended");
  return {
    session,
    seq,
    summary,
    waiting: waiting.map((one) => one.seq),
    ledger,
    approvals: pending,
    job: await jobOf(backend, session, summary.gen),
    isPaused: depth.isPaused,
    workers: members.length,
    runners: new Set(runners.map(({ runner }) => runner)),
    end: isOver ? undefined : await endOf(log, session, turnIdOf(session, seq)),
  };
}
