import { once } from "node:events";
import type { Writable } from "node:stream";
import {
  apiApp,
  isChildSession,
  type QueuedMessage,
  type SessionKey,
  turnIdOf,
} from "@larkline/protocol";
import { deadline, pause, type Clock } from "@larkline/protocol/clock";
import type { Message } from "@larkline/protocol/content";
import { personZoneKey } from "@larkline/protocol/schedule";
import { forgetKeptResponses, type DeadLetter, type SessionFile } from "@larkline/store";
import { removeResult } from "@larkline/store/runners";
import type { Bilingual, Language } from "./config.ts";
import {
  blobsIn,
  copiesOf,
  isOwn,
  isWholly,
  type KeptMessage,
  languageKeysOf,
  messagesOf,
  openPersonStores,
  type Person,
  type PersonStores,
  type PersonStoresOptions,
  sessionsOfPerson,
  storedResultsIn,
} from "./person-data.ts";

/** What to do where no app is named. */
export const noApp: Bilingual = {
  zh: "不知道是哪个应用：请用 --app 指定，或设置 FEISHU_APP_ID。",
  en: "It is not known which app is meant: name it with --app, or set FEISHU_APP_ID.",
};

interface PeopleTask {
  clock: Clock;
  action: "export" | "delete";
  person: Person;
  /** Delete, not only count. */
  yes: boolean;
  language: Language;
  places: Omit<PersonStoresOptions, "onError">;
  output: Writable;
}

/** How long workers may take to end what they are doing for the person. */
const workerPatienceMs = 60_000;
const lookEveryMs = 250;
/** Longer than a worker collects names, asks the platform for them, and writes them. */
const writtenWithinMs = 7_000;

function summaryOf({ act, counts }: { act: boolean; counts: DeletionCounts }): Bilingual {
  const { sessions, groups, messages, archived, files, rules, memories } = counts;
  const zh = `整个会话 ${sessions} 个，群会话 ${groups} 个；Redis 中消息 ${messages} 条，归档中 ${archived} 条，文件 ${files} 个，规则 ${rules} 条，记忆 ${memories} 条`;
  const en =
    `${sessions} conversations as a whole, and what they wrote in ${groups} of groups: ${messages} messages in Redis, ` +
    `${archived} in the archive, ${files} files; ${rules} rules, ${memories} memories`;
  if (act) return { zh: `已删除：${zh}。`, en: `Deleted: ${en}.` };
  return {
    zh: `将删除：${zh}。尚未删除任何内容，加 --yes 执行。`,
    en: `To delete: ${en}. Nothing is deleted yet: add --yes.`,
  };
}

async function print(output: Writable, line: string): Promise<void> {
  if (!output.write(`${line}\n`)) await once(output, "drain");
}

async function obey(
  stores: PersonStores,
  { clock, action, person, yes, language, output }: PeopleTask,
): Promise<void> {
  if (action === "export") {
    for await (const fact of exportPerson(stores, person)) {
      await print(output, JSON.stringify(fact));
    }
    return;
  }
  const counts = await deletePerson(stores, person, {
    clock,
    act: yes,
    patienceMs: workerPatienceMs,
    intervalMs: lookEveryMs,
    settleMs: yes ? writtenWithinMs : 0,
  });
  await print(output, summaryOf({ act: yes, counts })[language]);
  // Shows a wrong --chat before it is too late.
  if (!yes) {
    for (const session of await sessionsOfPerson(stores, person)) {
      await print(output, `  ${session}`);
    }
  }
}

/** Exports or deletes what is stored of a person. Rejects when it could not be done to the end. */
export async function lookAfterPerson(task: PeopleTask): Promise<void> {
  let lastError: Error | undefined;
  const stores = openPersonStores({ ...task.places, onError: (error) => (lastError = error) });
  try {
    await obey(stores, task);
  } catch (error) {
    // A connection that fails says more than the wait that it ended.
    throw lastError ?? error;
  } finally {
    await stores.close();
  }
}

const mostWaiting = 1_000;

/** Everything that is stored of a person, one fact after the other; what they wrote in groups, not what others wrote. */
export async function* exportPerson(
  stores: PersonStores,
  person: Person,
): AsyncIterable<Record<string, unknown>> {
  const { app, id } = person;
  const sessions = await sessionsOfPerson(stores, person);
  const key = `name:${app}:${id}`;
  const looked = (await stores.lookups.get(key)) ?? (await stores.workerLookups.get(key));
  const name = looked ?? (await stores.names.of([id])).get(id);
  const kept = await Promise.all(
    languageKeysOf(person).map(async (each) => await stores.lookups.get(each)),
  );
  const language = kept.find((each) => each !== undefined);
  yield {
    type: "person",
    app,
    id,
    ...(name === undefined ? {} : { name }),
    ...(language && { language }),
  };
  for (const session of sessions) yield* exportSession(stores, session, person);
  for (const rule of await stores.rules.ofPerson(app, id)) yield { type: "rule", ...rule };
  yield* exportMemories(stores, { kind: "person", app, id });
  for (const rating of await stores.ratings.ofPerson(app, id)) yield { type: "rating", ...rating };
  yield* exportAudit(stores, person);
  await stores.audit.append({ kind: "person_exported", app, userId: id });
}

async function* exportMemories(
  { memories }: PersonStores,
  { by, ...owner }: TheirMemories,
): AsyncIterable<Record<string, unknown>> {
  for (const memory of (await memories.everything(owner)).memories) {
    if (by === undefined || memory.by === by) {
      yield { type: "memory", about: owner.kind, of: owner.id, ...memory };
    }
  }
}

async function* exportSession(
  stores: PersonStores,
  session: string,
  person: Person,
): AsyncIterable<Record<string, unknown>> {
  const whole = await isWholly(stores, session, person);
  yield { type: "session", session, whole };
  for (const owner of memoriesIn(session, person)) yield* exportMemories(stores, owner);
  for (const { path, text, by } of await stores.files.all(session)) {
    if (whole || by.includes(person.id)) yield { type: "file", session, path, text };
  }
  for await (const { number, message } of messagesOf(stores, session)) {
    if (whole || isOwn(message, person)) yield { type: "message", session, number, ...message };
  }
  const { head } = await stores.store.summary(session);
  const waiting = await stores.store.waiting(session, mostWaiting);
  for (const { message } of [...(head === undefined ? [] : [head]), ...waiting]) {
    if (whole || message.sender.id === person.id) yield { type: "waiting_message", ...message };
  }
  for (const { approval, state, decisions } of await stores.approvals.pending(session)) {
    if (whole || approval.requester.id === person.id) {
      yield { type: "approval", ...approval, state, decisions };
    }
  }
}

async function* exportAudit(
  { audit, archive }: PersonStores,
  { app, id }: Person,
): AsyncIterable<Record<string, unknown>> {
  const known = new Set<string>();
  if (archive !== undefined) {
    for await (const record of archive.auditOf(app, id)) {
      known.add(JSON.stringify(record));
      yield { type: "audit", ...record };
    }
  }
  for await (const record of audit.export(0, Number.POSITIVE_INFINITY)) {
    const isNew = record.app === app && record.userId === id && !known.has(JSON.stringify(record));
    if (isNew) yield { type: "audit", ...record };
  }
}

/** Whose memories are the person's; `by`: only those that this person has left there. */
interface TheirMemories {
  kind: "person" | "chat";
  app: string;
  id: string;
  by?: string;
}

/** Those about a session; of the HTTP API, whose callers without names are the person of their session, all. */
function memoriesIn(session: SessionKey, { app, id }: Person): TheirMemories[] {
  if (app !== apiApp) {
    return [{ kind: "chat", app, id: session.slice(app.length + 1).split(".")[0] ?? "", by: id }];
  }
  return [
    { kind: "person", app, id: session },
    { kind: "chat", app, id: session },
  ];
}

/** What a deletion takes away, or would. */
export interface DeletionCounts {
  /** Sessions that go as a whole. */
  sessions: number;
  /** Sessions of groups in which the person's messages are replaced. */
  groups: number;
  /** Messages in Redis; messages in the archive, which has most of them as well. */
  messages: number;
  archived: number;
  files: number;
  rules: number;
  memories: number;
}

interface DeletionOptions {
  clock: Clock;
  /** False: only count. */
  act: boolean;
  /** How long to wait for workers to end what they are doing for the person, ms. */
  patienceMs: number;
  /** Between two looks, ms. */
  intervalMs: number;
  /** How long workers may take to write down what they have seen of the person, ms. */
  settleMs: number;
}

/** A worker still answers the person. Each step deletes whole or not at all, so another run can continue. */
class StillRunningError extends Error {
  override readonly name = "StillRunningError";

  constructor(session: SessionKey) {
    super(
      `${session} is still being answered. Do the workers run? Run the command again: it continues where it stopped.`,
    );
  }
}

/** Replaces a deleted message: models need a message at its place. */
const marker: Message = {
  role: "user",
  content: [{ type: "text", text: "[此消息已删除 / message deleted]" }],
};
/** Replaces calls and their results in one step, because a call without its result is refused by models. */
const markerOfCalls: Message = {
  role: "assistant",
  content: [{ type: "text", text: "[工具调用已删除 / calls deleted]" }],
};
const maxRounds = 20;

interface Deletion extends DeletionOptions {
  stores: PersonStores;
  person: Person;
  counts: DeletionCounts;
}

/**
 * Deletes what is stored of a person, session by session. Every step may be done twice and the index goes
 * last, so that a run that was broken off is finished by the next one.
 */
export async function deletePerson(
  stores: PersonStores,
  person: Person,
  options: DeletionOptions,
): Promise<DeletionCounts> {
  const counts = {
    sessions: 0,
    groups: 0,
    messages: 0,
    archived: 0,
    files: 0,
    rules: 0,
    memories: 0,
  };
  const deletion: Deletion = { ...options, stores, person, counts };
  if (options.act) {
    // Roots before all: one that is at work might call further helpers when one of them is stopped.
    for (const session of await sessionsOfPerson(stores, person)) {
      if (isChildSession(session)) continue;
      const isTheirs = await isWholly(stores, session, person);
      await stopRuns(
        deletion,
        session,
        ({ message }) => isTheirs || message.sender.id === person.id,
      );
    }
  }
  const sessions = await sessionsOfPerson(stores, person);
  // First: what is released meanwhile waits in an inbox then, and is stopped below.
  if (options.act) {
    const { app, id } = person;
    await stores.removeParked((message) => message.app === app && message.sender.id === id);
  }
  if (options.act) {
    for (const { schedule } of await stores.schedules.ofPerson(person.app, person.id)) {
      await stores.schedules.remove(schedule);
    }
    await stores.lookups.delete(personZoneKey(person.app, person.id));
  }
  const owners = sessions.flatMap((session) => memoriesIn(session, person));
  // And once more when the runs of their session are stopped: the index that leads to it goes with the session.
  for (const owner of new Map(owners.map((each) => [`${each.kind} ${each.id}`, each])).values()) {
    await deleteMemories(deletion, owner);
  }
  const whole: SessionKey[] = [];
  // Helpers before their roots, which take them away: what they refer to is kept elsewhere.
  for (const session of sessions.toSorted(
    (one, other) => Number(isChildSession(other)) - Number(isChildSession(one)),
  )) {
    if (await isWholly(stores, session, person)) {
      await eraseSession(deletion, session);
      whole.push(session);
    } else await redactSession(deletion, session);
  }
  await deleteRules(deletion);
  await deleteMemories(deletion, { kind: "person", app: person.app, id: person.id });
  if (!options.act) return counts;
  const { app, id } = person;
  await stores.forgetGrant(app, id);
  for (const key of [`name:${app}:${id}`, `direct:${app}:${id}`, ...languageKeysOf(person)]) {
    await Promise.all([stores.lookups.delete(key), stores.workerLookups.delete(key)]);
  }
  // Workers write down what they have seen a moment later.
  await pause(options.clock, options.settleMs);
  await stores.runs.erase(app, id, whole);
  await stores.ratings.erase(app, id, whole);
  await stores.usage.erase(id);
  await stores.names.erase([id, ...whole.map((session) => session.split(".")[1] ?? "")]);
  await stores.audit.append({ kind: "person_deleted", app, userId: id });
  return counts;
}

async function deleteMemories(deletion: Deletion, { by, ...owner }: TheirMemories): Promise<void> {
  const { stores, counts, act } = deletion;
  const { memories } = await stores.memories.everything(owner);
  counts.memories += memories.filter((memory) => by === undefined || memory.by === by).length;
  if (!act) return;
  if (by === undefined) await stores.memories.erase(owner);
  else await stores.memories.eraseBy(owner, by);
}

/** Cancels the matching messages of a session, and waits until all of them are over. */
async function stopRuns(
  deletion: Deletion,
  session: SessionKey,
  isMeant: (queued: QueuedMessage) => boolean,
): Promise<void> {
  const { stores, clock, patienceMs, intervalMs } = deletion;
  const { store } = stores;
  const deadlineMs = clock.monotonic() + patienceMs;
  for (;;) {
    const { head, setAside } = await store.summary(session);
    const queued: QueuedMessage[] = [
      ...setAside.map((turn) => turn.head),
      ...(head === undefined ? [] : [head]),
      ...(await store.waiting(session, mostWaiting)),
    ];
    const theirs = queued.filter(isMeant);
    if (theirs.length === 0) return;
    if (!(await store.cancelled(session))) {
      for (const { seq } of theirs) {
        await store.cancel(session, { turnId: turnIdOf(session, seq), reason: "cancelled" });
      }
    }
    if (clock.monotonic() >= deadlineMs) throw new StillRunningError(session);
    await pause(clock, intervalMs);
  }
}

/** What of a session is to be removed. */
interface Meant {
  isMeant: (message: Message) => boolean;
  isFile: (file: Pick<SessionFile, "by">) => boolean;
}

const everything: Meant = { isMeant: () => true, isFile: () => true };

function ownOf(person: Person): Meant {
  return {
    isMeant: (message) => isOwn(message, person),
    isFile: ({ by }) => by.includes(person.id),
  };
}

/** What is kept of a session now; what is meant of it counts. */
async function survey(
  { stores, counts }: Deletion,
  session: SessionKey,
  { isMeant, isFile }: Meant,
): Promise<{ length: number; numbers: Set<number>; blobs: Set<string>; results: Set<string> }> {
  const numbers = new Set<number>();
  const blobs = new Set<string>();
  const results = new Set<string>();
  // Numbers do not begin anew when the first messages are gone.
  let length = (await stores.sessions.read(session, 0, 0)).first;
  const count = ({ where }: KeptMessage): number =>
    where === "redis" ? (counts.messages += 1) : (counts.archived += 1);
  for await (const kept of copiesOf(stores, session)) {
    length = Math.max(length, kept.number + 1);
    if (!isMeant(kept.message)) continue;
    numbers.add(kept.number);
    for (const blob of blobsIn(kept.message)) blobs.add(blob);
    for (const handle of storedResultsIn(kept.message)) results.add(handle);
    count(kept);
  }
  const folder = await stores.files.all(session);
  counts.files += blobs.size + folder.filter(isFile).length;
  return { length, numbers, blobs, results };
}

/** What answers to the person hold that a group has not been shown: calls with their results, and thoughts. */
async function answersTo({ stores, person }: Deletion, session: SessionKey) {
  const theirs = new Set<number>();
  let last: Message["role"] | undefined;
  const calls = new Set<number>();
  const withoutThoughts = new Map<number, Message>();
  const results = new Set<string>();
  for await (const { number, message } of copiesOf(stores, session)) {
    // What stands before a message without an answer of its own has the same answer: words that the bot read along.
    const isWithTheirs = theirs.has(number - 1) && (message.role !== "user" || last === "user");
    const isTheirs = isWithTheirs || (message.role === "user" && isOwn(message, person));
    last = message.role;
    if (!isTheirs) continue;
    theirs.add(number);
    for (const handle of storedResultsIn(message)) results.add(handle);
    if (message.role === "tool") calls.add(number);
    if (message.role !== "assistant") continue;
    const spoken = message.content.filter(({ type }) => type !== "thinking");
    if (spoken.some(({ type }) => type === "tool_use")) calls.add(number);
    else if (spoken.length < message.content.length) {
      withoutThoughts.set(
        number,
        spoken.length === 0 ? markerOfCalls : { role: "assistant", content: spoken },
      );
    }
  }
  return { calls, withoutThoughts, results };
}

async function deleteBlobs({ stores }: Deletion, blobs: Iterable<string>): Promise<void> {
  for (const blob of blobs) await stores.blobs.delete(blob);
}

async function deleteResults(
  { stores }: Deletion,
  session: SessionKey,
  handles: Iterable<string>,
): Promise<void> {
  const { blobs, workerLookups } = stores;
  for (const handle of handles) {
    await removeResult({ blobs, lookups: workerLookups }, session, handle);
  }
}

async function eraseSession(deletion: Deletion, session: SessionKey): Promise<void> {
  const { stores, counts, act } = deletion;
  counts.sessions += 1;
  if (!act) {
    await survey(deletion, session, everything);
    return;
  }
  for (let round = 0; round < maxRounds; round += 1) {
    await stopRuns(deletion, session, () => true);
    for (const owner of memoriesIn(session, deletion.person)) await deleteMemories(deletion, owner);
    const { length, blobs, results } = await survey(deletion, session, everything);
    await deleteBlobs(deletion, blobs);
    await deleteResults(deletion, session, results);
    await forgetKeptResponses(stores.lookups, session, deletion.clock.now());
    await deleteLetters(deletion, session, () => true);
    await eraseJobs(deletion, { session }, session);
    // The archive first: from then on it refuses what a worker is about to add, and the index goes with the session.
    await stores.archive?.erase(session, length);
    const result = await stores.sessions.erase(session, length);
    if (result === "removed") return;
    await pause(deletion.clock, deletion.intervalMs);
  }
  throw new StillRunningError(session);
}

async function redactSession(deletion: Deletion, session: SessionKey): Promise<void> {
  const { stores, person, counts, act } = deletion;
  counts.groups += 1;
  if (!act) {
    await survey(deletion, session, ownOf(person));
    return;
  }
  for (let round = 0; round < maxRounds; round += 1) {
    await stopRuns(deletion, session, ({ message }) => message.sender.id === person.id);
    for (const owner of memoriesIn(session, person)) await deleteMemories(deletion, owner);
    const { length, numbers, blobs } = await survey(deletion, session, ownOf(person));
    await deleteBlobs(deletion, blobs);
    await stores.files.eraseBy(session, person.id);
    await deleteLetters(deletion, session, (letter) => isMessageOf(letter, person));
    await eraseJobs(deletion, { person: person.id }, session);
    // The answers first: what they answer is known by the person's messages.
    const answers = await answersTo(deletion, session);
    await deleteResults(deletion, session, answers.results);
    await redactAll(deletion, session, { numbers: answers.calls, marker: markerOfCalls });
    for (const [number, message] of answers.withoutThoughts) {
      await redactAll(deletion, session, { numbers: [number], marker: message });
    }
    // A bot that reads along in the group reads nothing again that was said before.
    const what = {
      person: person.id,
      numbers: [...numbers],
      marker: { ...marker, atMs: deletion.clock.now() },
    };
    // A running turn has read the old messages and may be writing a summary of them; another turn may begin meanwhile.
    const before = await runningTurn(stores, session);
    await stores.archive?.redact(session, what);
    await stores.sessions.redact(session, what);
    const running = [before, await runningTurn(stores, session)].filter(
      (turnId) => turnId !== undefined,
    );
    for (const turnId of running) await untilOver(deletion, session, turnId);
    if (running.length > 0) await stores.sessions.redact(session, what);
    if (await stores.sessions.forget(session, person.id, length)) {
      await stores.archive?.forget(session, person.id);
      return;
    }
    await pause(deletion.clock, deletion.intervalMs);
  }
  throw new StillRunningError(session);
}

async function redactAll(
  { stores, person }: Deletion,
  session: SessionKey,
  { numbers, marker: instead }: { numbers: Iterable<number>; marker: Message },
): Promise<void> {
  const what = { person: person.id, numbers: [...numbers], marker: instead };
  if (what.numbers.length === 0) return;
  await stores.archive?.redact(session, what);
  await stores.sessions.redact(session, what);
}

async function runningTurn(
  { store }: PersonStores,
  session: SessionKey,
): Promise<string | undefined> {
  const { state, head } = await store.summary(session);
  return state === "running" && head !== undefined ? turnIdOf(session, head.seq) : undefined;
}

async function untilOver(
  { stores, clock, patienceMs, intervalMs }: Deletion,
  session: SessionKey,
  turnId: string,
): Promise<void> {
  const deadlineMs = clock.monotonic() + patienceMs;
  while ((await runningTurn(stores, session)) === turnId) {
    if (clock.monotonic() >= deadlineMs) throw new StillRunningError(session);
    await pause(clock, intervalMs);
  }
}

/** Queues keep the ids of finished jobs for a while, those of the version before with all that they were given. */
async function eraseJobs(
  { stores, clock, patienceMs, intervalMs }: Deletion,
  of: Parameters<PersonStores["jobs"]["erase"]>[0],
  session: SessionKey,
): Promise<void> {
  const late = deadline(clock, patienceMs);
  while ((await stores.jobs.erase(of, late)) > 0) {
    if (late.aborted) throw new StillRunningError(session);
    await pause(clock, intervalMs);
  }
}

const mostLetters = 100_000;

/** Replies and messages that were given up are kept for a while, with what they say. */
async function deleteLetters(
  { stores: { letters } }: Deletion,
  session: SessionKey,
  isMeant: (letter: DeadLetter) => boolean,
): Promise<void> {
  for (const { id, session: itsSession } of await letters.list(mostLetters)) {
    const letter = itsSession === session ? await letters.find(session, id) : undefined;
    if (letter !== undefined && isMeant(letter)) await letters.discard(session, id);
  }
}

/** Answers in groups stay: they are the group's. */
function isMessageOf(letter: DeadLetter, person: Person): boolean {
  return letter.kind === "message" && letter.message.sender.id === person.id;
}

/** What they allowed, and what others allowed them, holds no longer. */
async function deleteRules({ stores: { rules }, person, counts, act }: Deletion): Promise<void> {
  for (const rule of await rules.ofPerson(person.app, person.id)) {
    counts.rules += 1;
    if (!act) continue;
    await rules.revoke(person.app, rule.id, { id: person.id });
    await rules.forget(rule);
  }
}
