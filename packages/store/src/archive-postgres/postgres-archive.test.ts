import { randomUUID } from "node:crypto";
import { createConnection, createServer, type AddressInfo, type Socket } from "node:net";
import { describeArchive } from "../archive.suite.ts";
import { createPostgresArchive } from "./postgres-archive.ts";
import { startPostgres, type TestPostgres } from "@larkline/testkit";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

let postgres: TestPostgres;

beforeAll(async () => {
  postgres = await startPostgres();
});
afterAll(async () => {
  await postgres.close();
});

/** Stands between PostgreSQL and its clients, and can be cut. */
async function startLine(postgresUrl: string) {
  const url = new URL(postgresUrl);
  const target = { host: url.hostname, port: Number(url.port) };
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = createConnection(target);
    client.pipe(upstream).pipe(client);
    for (const socket of [client, upstream]) sockets.add(socket.on("error", () => undefined));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // it listens on TCP
  url.port = String(port);
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: url.href,
    cut,
    close: () => {
      cut();
      server.close();
    },
  };
}

function open(schema: string) {
  return createPostgresArchive({ url: postgres.url, schema });
}

describeArchive("PostgreSQL", async () => {
  const schema = `test ${randomUUID()} "quoted"`;
  const [archive, elsewhere] = [open(schema), open(schema)];
  return {
    archive,
    elsewhere,
    close: async () => {
      await Promise.all([archive.close(), elsewhere.close()]);
    },
  };
});

describe("the tables of the archive", () => {
  const batch = {
    session: "cli_app.oc_chat",
    first: 0,
    messages: [{ role: "user" as const, content: [{ type: "text" as const, text: "hello" }] }],
    people: { ou_ann: "group" },
  };

  it("are made once, whichever process comes first", async () => {
    const schema = randomUUID();
    const many = Array.from({ length: 5 }, () => open(schema));
    await Promise.all(many.map(async (archive) => await archive.addMessages(batch)));
    expect(await many[0]?.read(batch.session, 0, 10)).toHaveLength(1);
    await Promise.all(many.map(async (archive) => await archive.close()));
  });

  it("of one namespace hold nothing of another", async () => {
    const [one, other] = [open(randomUUID()), open(randomUUID())];
    await one.addMessages(batch);
    expect(await other.ends([batch.session])).toEqual(new Map());
    await Promise.all([one.close(), other.close()]);
  });

  it("are there again after PostgreSQL was away, without a new start", async () => {
    const archive = open(randomUUID());
    await archive.addMessages(batch);
    await postgres.stop();
    await expect(archive.addMessages(batch)).rejects.toThrow();
    const late = open(randomUUID());
    await expect(late.ends([batch.session])).rejects.toThrow();
    await postgres.start();
    await expect
      .poll(async () => await archive.read(batch.session, 0, 10).catch(() => []), {
        timeout: 60_000,
      })
      .toHaveLength(1);
    expect(await late.ends([batch.session])).toEqual(new Map());
    await Promise.all([archive.close(), late.close()]);
  });

  it("are left alone by a connection that breaks in the middle: the caller gets the error, and the process lives on", async () => {
    const line = await startLine(postgres.url);
    const archive = createPostgresArchive({ url: line.url, schema: "broken" });
    await archive.addMessages(batch);
    const operator = new Client({ connectionString: postgres.url });
    await operator.connect();
    try {
      // `addMessages` takes the session's lock in its transaction: it waits until the operator rolls back.
      await operator.query("begin");
      await operator.query("select pg_advisory_xact_lock(hashtextextended($1, 0))", [
        `broken ${batch.session}`,
      ]);
      const late = { ...batch, first: 1 };
      const added = archive.addMessages(late).catch((error: unknown) => error);
      const waiting = "select from pg_stat_activity where wait_event = 'advisory'";
      await expect
        .poll(async () => (await operator.query(waiting)).rowCount, { timeout: 60_000 })
        .toBe(1);
      line.cut();
      expect(await added).toBeInstanceOf(Error);
      await operator.query("rollback");
      await archive.addMessages(late);
      expect(await archive.read(batch.session, 0, 10)).toHaveLength(2);
    } finally {
      await operator.end();
      await archive.close();
      line.close();
    }
  });

  it("say what is wrong with a newer version, and never the password", async () => {
    const wrong = createPostgresArchive({
      url: "postgres://me:geheim@127.0.0.1:1/x",
      schema: "larkline",
    });
    const error = await wrong.ends(["x"]).catch((reason: unknown) => reason);
    expect(String(error)).not.toContain("geheim");
    await wrong.close();
  });
});
