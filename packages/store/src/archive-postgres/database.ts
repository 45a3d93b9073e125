import { createRequire } from "node:module";
import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import type * as Postgres from "pg";
import type { Pool, PoolClient, QueryResultRow } from "pg";
import { migrations } from "./migrations.ts";

export interface DatabaseOptions {
  /** `postgres://user:password@host:port/database`, with what the driver knows behind a `?`, such as `sslmode=require`. */
  url: string;
  /** The schema that holds the tables; made when it is missing. */
  schema: string;
  /** How long PostgreSQL may take for one statement. Default 30 s. */
  patienceMs?: number;
  /** The machine's if absent. */
  clock?: Clock;
}

/** Values of a statement. */
export type Values = readonly (string | number | null | readonly (string | number | null)[])[];

export interface Database {
  /** Rows of one statement. */
  rows<Row extends QueryResultRow>(text: string, values: Values): Promise<Row[]>;
  /** Statements that count together, one session at a time: others that lock the same name wait. */
  locked(
    name: string,
    run: (execute: (text: string, values: Values) => Promise<void>) => Promise<void>,
  ): Promise<void>;
  /** Waits for a second at most. */
  close(): Promise<void>;
}

const connections = 4;
const connectMs = 5_000;
/** How long `close` waits for a statement that PostgreSQL does not answer. */
const closeMs = 1_000;
/** Several processes may start at once: one makes the tables, the others wait. */
const migrationLock = 7_105_223_801;

/** The names of tables mean those of the archive's own schema. */
function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

const require = createRequire(import.meta.url);

/** Only processes that have an archive load the driver. */
function poolOf({ url, schema, patienceMs = 30_000 }: DatabaseOptions): Pool {
  const driver = require("pg") as typeof Postgres; // as the package says
  const pool = new driver.Pool({
    connectionString: url,
    max: connections,
    connectionTimeoutMillis: connectMs,
    query_timeout: patienceMs,
    statement_timeout: patienceMs,
    keepAlive: true,
    allowExitOnIdle: true,
    application_name: "larkline",
    options: `-c search_path=${quoted(schema).replaceAll(/[ \\]/g, "\\$&")}`,
  });
  // Idle connections; the next query gets another one.
  pool.on("error", ignore);
  return pool;
}

/** A connection that breaks fails its statement, which is enough; without a listener the error would end the process. */
function ignore(): void {}

async function transaction(pool: Pool, run: (client: PoolClient) => Promise<void>): Promise<void> {
  const client = await pool.connect();
  client.on("error", ignore);
  let failure: Error | undefined;
  try {
    await client.query("begin");
    await run(client);
    await client.query("commit");
  } catch (error) {
    failure = error instanceof Error ? error : new Error(String(error));
    throw failure;
  } finally {
    // A connection in the middle of something is of no use to others.
    client.release(failure ?? false);
    client.off("error", ignore);
  }
}

async function migrate(client: PoolClient, schema: string): Promise<void> {
  await client.query("select pg_advisory_xact_lock($1)", [migrationLock]);
  await client.query(`create schema if not exists ${quoted(schema)}`);
  await client.query("create table if not exists migrations (version integer primary key)");
  const found = await client.query<{ version: number | null }>(
    "select max(version) as version from migrations",
  );
  const version = found.rows[0]?.version ?? 0;
  if (version > migrations.length) {
    throw new Error(
      `The archive has tables of version ${version}, later than ${migrations.length}: upgrade this program.`,
    );
  }
  for (const [at, migration] of migrations.entries()) {
    if (at < version) continue;
    await client.query(migration);
    await client.query("insert into migrations (version) values ($1)", [at + 1]);
  }
}

/** Connects when it is first used, and brings the tables up to date then: a worker starts without PostgreSQL, too. */
export function openDatabase(options: DatabaseOptions): Database {
  const { schema, clock = systemClock } = options;
  const pool = poolOf(options);
  let migrated: Promise<void> | undefined;
  async function ready(): Promise<void> {
    migrated ??= transaction(pool, async (client) => await migrate(client, schema));
    try {
      await migrated;
    } catch (error) {
      migrated = undefined;
      throw error;
    }
  }

  return {
    rows: async <Row extends QueryResultRow>(text: string, values: Values) => {
      await ready();
      return (await pool.query<Row>(text, [...values])).rows;
    },
    locked: async (name, run) => {
      await ready();
      await transaction(pool, async (client) => {
        await client.query("select pg_advisory_xact_lock(hashtextextended($1, 0))", [
          `${schema} ${name}`,
        ]);
        await run(async (text, values) => void (await client.query(text, [...values])));
      });
    },
    close: async () => {
      const late = new AbortController();
      await Promise.race([pool.end(), pause(clock, closeMs, late.signal)]).finally(() =>
        late.abort(),
      );
    },
  };
}
