import type { SessionKey } from "@larkline/protocol";
import type { Message } from "@larkline/protocol/content";
import type { Archive, ArchiveBatch, ArchivedMessage, ArchiveEnd } from "../archive.ts";
import type { AuditEntry, AuditPlace, AuditRecord } from "../audit-log.ts";
import type { Redaction } from "../retention.ts";
import { type Database, type DatabaseOptions, openDatabase } from "./database.ts";

export type PostgresArchiveOptions = DatabaseOptions;

/** PostgreSQL takes no zero character in a text; ids of people that have one are found without it. */
function plain(text: string): string {
  return text.replaceAll("\0", "");
}

function senderOf(message: Message): string | null {
  return message.role === "user" && message.sender !== undefined ? plain(message.sender) : null;
}

/** How many messages or records one statement takes. */
const portion = 500;

function* portions<T>(items: readonly T[]): Iterable<{ from: number; items: readonly T[] }> {
  for (let from = 0; from < items.length; from += portion) {
    yield { from, items: items.slice(from, from + portion) };
  }
}

/** Sessions of an app: their names begin with it and a dot. */
const ofApp = "starts_with(session, $2 || '.')";

/** The archive in PostgreSQL 13 or newer. Connects, and makes its tables, when it is first used. */
export function createPostgresArchive(options: PostgresArchiveOptions): Archive {
  return new PostgresArchive(openDatabase(options));
}

class PostgresArchive implements Archive {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async ends(sessions: readonly SessionKey[]): Promise<ReadonlyMap<SessionKey, ArchiveEnd>> {
    const rows = await this.#database.rows<{
      session: string;
      number: string | null;
      below: string | null;
      message: Message;
    }>(
      `select asked.session, last.number, last.message, erased.below
       from unnest($1::text[]) as asked(session)
       left join lateral (
         select number, message from messages where messages.session = asked.session order by number desc limit 1
       ) as last on true
       left join erased on erased.session = asked.session
       where last.number is not null or erased.below is not null`,
      [sessions],
    );
    return new Map(
      rows.map(({ session, number, below, message }) => {
        const length = number === null ? 0 : Number(number) + 1;
        const isErased = Number(below ?? 0) > length - 1;
        return [session, isErased ? { length: Number(below) } : { length, last: message }];
      }),
    );
  }

  async addMessages({ session, first, messages, people }: ArchiveBatch): Promise<void> {
    await this.#database.locked(session, async (execute) => {
      for (const { from, items } of portions(messages)) {
        await execute(
          `insert into messages (session, number, sender, message)
           select $1, $2::bigint + at - 1, sender, message::json
           from unnest($3::text[], $4::text[]) with ordinality as given(sender, message, at)
           where $2::bigint + at - 1 >= coalesce((select below from erased where session = $1), 0)
           on conflict do nothing`,
          [
            session,
            first + from,
            items.map(senderOf),
            items.map((message) => JSON.stringify(message)),
          ],
        );
      }
      // Of those who wrote nothing but what was erased, nothing comes back.
      await execute(
        `insert into people (person, session, chat_type)
         select person, $1, chat_type from unnest($2::text[], $3::text[]) as given(person, chat_type)
         where $4::bigint > coalesce((select below from erased where session = $1), 0)
         on conflict do nothing`,
        [session, Object.keys(people).map(plain), Object.values(people), first + messages.length],
      );
    });
  }

  async read(session: SessionKey, from: number, limit: number): Promise<ArchivedMessage[]> {
    const rows = await this.#database.rows<{ number: string; message: Message }>(
      "select number, message from messages where session = $1 and number >= $2 order by number limit $3",
      [session, from, limit],
    );
    return rows.map(({ number, message }) => ({ number: Number(number), message }));
  }

  async peopleOf(session: SessionKey): Promise<Readonly<Record<string, string>>> {
    const rows = await this.#database.rows<{ person: string; chat_type: string }>(
      "select person, chat_type from people where session = $1",
      [session],
    );
    return Object.fromEntries(rows.map(({ person, chat_type: chatType }) => [person, chatType]));
  }

  async lastAudit(part: string): Promise<AuditPlace | undefined> {
    const [last] = await this.#database.rows<{ at_ms: string; number: string }>(
      "select at_ms, number from audit where part = $1 order by at_ms desc, number desc limit 1",
      [part],
    );
    return last && { atMs: Number(last.at_ms), number: Number(last.number) };
  }

  async addAudit(part: string, entries: readonly AuditEntry[]): Promise<void> {
    for (const { items } of portions(entries)) {
      await this.#database.rows(
        `insert into audit (part, at_ms, number, app, person, record)
         select $1, at_ms, number, app, person, record::json
         from unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[])
           as given(at_ms, number, app, person, record)
         on conflict do nothing`,
        [
          part,
          items.map(({ atMs }) => atMs),
          items.map(({ number }) => number),
          items.map(({ record }) => plainOrNull(record.app)),
          items.map(({ record }) => plainOrNull(record.userId)),
          items.map(({ record }) => JSON.stringify(record)),
        ],
      );
    }
  }

  async *auditOf(app: string, person: string): AsyncIterable<AuditRecord> {
    let after: [number, string, number] = [-1, "", -1];
    for (;;) {
      const rows = await this.#database.rows<{
        part: string;
        at_ms: string;
        number: string;
        record: AuditRecord;
      }>(
        `select part, at_ms, number, record from audit
         where person = $1 and app = $2 and (at_ms, part, number) > ($3, $4, $5)
         order by at_ms, part, number limit $6`,
        [plain(person), plain(app), ...after, portion],
      );
      for (const { record } of rows) yield record;
      const last = rows.at(-1);
      if (last === undefined) return;
      after = [Number(last.at_ms), last.part, Number(last.number)];
    }
  }

  async sessionsOf(app: string, person: string): Promise<SessionKey[]> {
    const rows = await this.#database.rows<{ session: string }>(
      `select session from people where person = $1 and ${ofApp}`,
      [plain(person), app],
    );
    return rows.map(({ session }) => session);
  }

  async erase(session: SessionKey, length: number): Promise<void> {
    await this.#database.locked(session, async (execute) => {
      await execute(
        `insert into erased (session, below) values ($1, $2)
         on conflict (session) do update set below = greatest(erased.below, excluded.below)`,
        [session, length],
      );
      await execute("delete from messages where session = $1 and number < $2", [session, length]);
      await execute("delete from people where session = $1", [session]);
    });
  }

  async redact(session: SessionKey, { numbers, marker }: Redaction): Promise<void> {
    await this.#database.locked(session, async (execute) => {
      for (const { items } of portions(numbers)) {
        await execute(
          `insert into messages (session, number, sender, message)
           select $1, number, null, $3::json from unnest($2::bigint[]) as given(number)
           where number >= coalesce((select below from erased where session = $1), 0)
           on conflict (session, number) do update set sender = null, message = excluded.message`,
          [session, items, JSON.stringify(marker)],
        );
      }
    });
  }

  async forget(session: SessionKey, person: string): Promise<void> {
    await this.#database.rows("delete from people where session = $1 and person = $2", [
      session,
      plain(person),
    ]);
  }

  async close(): Promise<void> {
    await this.#database.close();
  }
}

function plainOrNull(text: string | undefined): string | null {
  return text === undefined ? null : plain(text);
}
