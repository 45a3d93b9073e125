import { isOwn, isWholly, languageKeysOf, messagesOf, sessionsOfPerson, type Person } from "./person-sessions.ts";
import type { PersonStores } from "./person-stores.ts";

const mostWaiting = 1_000;

/** Everything that is stored of a person, one fact after the other; what they wrote in groups, not what others wrote. */
export async function* exportPerson(stores: PersonStores, person: Person): AsyncIterable<Record<string, unknown>> {
  const { app, id } = person;
  const key = `name:${app}:${id}`;
  const name = (await stores.lookups.get(key)) ?? (await stores.workerLookups.get(key));
  const kept = await Promise.all(languageKeysOf(person).map(async (each) => await stores.lookups.get(each)));
  const language = kept.find((each) => each !== undefined);
  yield { type: "person", app, id, ...(name === undefined ? {} : { name }), ...(language && { language }) };
  for (const session of await sessionsOfPerson(stores, person)) yield* exportSession(stores, session, person);
  for (const rule of await stores.rules.ofPerson(app, id)) yield { type: "rule", ...rule };
  yield* exportAudit(stores, person);
  await stores.audit.append({ kind: "person_exported", app, userId: id });
}

async function* exportSession(
  stores: PersonStores,
  session: string,
  person: Person,
): AsyncIterable<Record<string, unknown>> {
  const whole = await isWholly(stores, session, person);
  yield { type: "session", session, whole };
  for await (const { number, message } of messagesOf(stores, session)) {
    if (whole || isOwn(message, person)) yield { type: "message", session, number, ...message };
  }
  const { head } = await stores.store.summary(session);
  const waiting = await stores.store.waiting(session, mostWaiting);
  for (const { message } of [...(head === undefined ? [] : [head]), ...waiting]) {
    if (whole || message.sender.id === person.id) yield { type: "waiting_message", ...message };
  }
  for (const { approval, state, decisions } of await stores.approvals.pending(session)) {
    if (whole || approval.requester.id === person.id) yield { type: "approval", ...approval, state, decisions };
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
