import { allAbilities } from "@larkline/agent";
import { replaced } from "@larkline/store/testing";
import { describe, expect, it } from "vitest";
import { survives } from "./crash.fixture.ts";
import { calling, resultsIn, type Wanted } from "./approval-world.fixture.ts";
import {
  append,
  holding,
  inbound,
  newWorld,
  outboxOf,
  runnerOf,
  runTools,
  session,
  settle,
  type World,
} from "./turn-world.fixture.ts";

let count = 0;

/** One turn with these batches of calls; returns the requests that the model got, and the results. */
async function turn(world: World, ...batches: Wanted[][]) {
  const model = calling(...batches);
  await append(world, inbound(`om_${(count += 1)}`, "please"));
  const before = (await resultsIn(world)).length;
  await settle(world, { backend: model.backend, agent: { abilities: { files: true } } });
  return { requests: model.requests, results: (await resultsIn(world)).slice(before) };
}

const list = (fields: object): Wanted => ({ name: "list_files", arguments: fields });
const read = (fields: object): Wanted => ({ name: "read_file", arguments: fields });
const search = (fields: object): Wanted => ({ name: "search_files", arguments: fields });
const write = (fields: object): Wanted => ({ name: "write_file", arguments: fields });
const edit = (fields: object): Wanted => ({ name: "edit_file", arguments: fields });
const remove = (fields: object): Wanted => ({ name: "delete_file", arguments: fields });

const filesOf = async (world: World) =>
  (await world.files.all(session)).map(({ path, text }) => [path, text]);

const fileToolNames = allAbilities.find(({ name }) => name === "files")?.toolNames ?? [];

describe("the working folder in a turn", () => {
  it("is offered to agents that have one, and to no others", async () => {
    const world = newWorld();
    const { requests } = await turn(world);
    expect(requests[0]?.tools?.map(({ name }) => name)).toEqual(
      expect.arrayContaining([...fileToolNames]),
    );
    const plain = calling();
    await append(world, inbound("om_plain", "please"));
    await settle(world, { backend: plain.backend });
    const names = plain.requests[0]?.tools?.map(({ name }) => name) ?? [];
    expect(names.filter((name) => fileToolNames.includes(name))).toEqual([]);
  });

  it("holds what a turn has written for the next ones, to list, read, search, edit and delete", async () => {
    const world = newWorld();
    const text = "first line\nThe Zebra\nlast";
    const { results } = await turn(world, [write({ path: "notes/a.md", content: text })]);
    expect(results).toEqual([["notes/a.md has 25 bytes now.", false]]);
    const next = await turn(
      world,
      [
        list({}),
        list({ folder: "other" }),
        read({ path: "notes/a.md" }),
        read({ path: "notes/a.md", offset: 1, lines: 1 }),
        search({ query: "zebra", folder: "notes/" }),
      ],
      [edit({ path: "notes/a.md", old_text: "Zebra", new_text: "$& Ape" })],
      [write({ path: "notes/a.md", content: "\nmore", append: true })],
      [read({ path: "notes/a.md" })],
      [remove({ path: "notes/a.md" })],
    );
    expect(next.results.map(([result]) => result)).toEqual([
      JSON.stringify({
        files: [{ path: "notes/a.md", bytes: 25 }],
        freeBytes: 1_999_975,
        freeFiles: 99,
      }),
      JSON.stringify({ files: [], freeBytes: 1_999_975, freeFiles: 99 }),
      text,
      "The Zebra\n[Lines 2 to 2 of 3; go on with offset 2.]",
      JSON.stringify({ matches: [{ path: "notes/a.md", line: 2, text: "The Zebra" }] }),
      "notes/a.md has 26 bytes now.",
      "notes/a.md has 31 bytes now.",
      "first line\nThe $& Ape\nlast\nmore",
      "notes/a.md is gone.",
    ]);
    expect(await filesOf(world)).toEqual([]);
  });

  it("answers what is wrong with an error that the model can read, and changes nothing", async () => {
    const world = newWorld();
    const { results } = await turn(
      world,
      [write({ path: "a", content: "x y x" })],
      [
        read({ path: "b" }),
        read({ path: "../a" }),
        write({ path: "/etc/passwd", content: "x" }),
        write({ path: "a" }),
        edit({ path: "a", old_text: "z", new_text: "" }),
        edit({ path: "a", old_text: "x", new_text: "" }),
        edit({ path: "b", old_text: "x", new_text: "" }),
        search({ query: "" }),
      ],
    );
    expect(results.slice(1).filter(([, isError]) => !isError)).toEqual([]);
    expect(results.map(([text]) => text).join("\n")).toMatch(
      /no file b\.[^]*`\.\.`[^]*slash[^]*do not fit[^]*not in the file[^]*2 times[^]*no file b/,
    );
    expect(await filesOf(world)).toEqual([["a", "x y x"]]);
  });
});

it("an edit that would make a file of gigabytes is refused before it is made", async () => {
  const world = newWorld();
  const content = "x".repeat(50_000);
  const { results } = await turn(
    world,
    [write({ path: "a", content })],
    [edit({ path: "a", old_text: "x", new_text: "y".repeat(50_000), all: true })],
  );
  expect(results[1]).toEqual([expect.stringContaining("A file has at most 200000 bytes"), true]);
  expect(await filesOf(world)).toEqual([["a", content]]);
});

describe("a to-do list", () => {
  const todos = (...states: string[]): Wanted => ({
    name: "todo_write",
    arguments: { todos: states.map((state, at) => ({ text: `step ${at + 1}`, state })) },
  });

  it("is on the card as it was written last, and the model reads it", async () => {
    const world = newWorld();
    const model = calling(
      [todos("in_progress", "pending")],
      ["look"],
      [todos("done", "in_progress")],
    );
    await append(world, inbound("om_todo", "please"));
    await settle(world, {
      backend: model.backend,
      agent: { abilities: { todos: true }, reply: "card" },
    });
    const last = [
      { text: "step 1", state: "done" },
      { text: "step 2", state: "in_progress" },
    ];
    expect((await outboxOf(world)).at(-1)?.view?.panels).toMatchObject([
      { name: "todos", items: last },
    ]);
    expect((await resultsIn(world)).at(-1)).toEqual([JSON.stringify({ todos: last }), false]);
    expect(model.requests[0]?.tools?.map(({ name }) => name)).not.toContain("write_file");
  });

  it("is bounded, stays as it was where a call does not fit, and goes when it is emptied", async () => {
    const world = newWorld();
    const long = {
      name: "todo_write",
      arguments: { todos: [{ text: "x".repeat(201), state: "done" }] },
    };
    const many = todos(...Array.from({ length: 21 }, () => "done"));
    const model = calling([todos("done")], [long, many, todos("unknown")]);
    await append(world, inbound("om_kept", "please"));
    await settle(world, {
      backend: model.backend,
      agent: { abilities: { todos: true }, reply: "card" },
    });
    expect((await outboxOf(world)).at(-1)?.view?.panels).toMatchObject([
      { items: [{ text: "step 1", state: "done" }] },
    ]);
    expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([
      false,
      true,
      true,
      true,
    ]);
    await append(world, inbound("om_empty", "please"));
    const emptied = calling([todos("done")], [todos()]);
    await settle(world, {
      backend: emptied.backend,
      agent: { abilities: { todos: true }, reply: "card" },
    });
    expect((await outboxOf(world)).at(-1)?.view).not.toHaveProperty("panels");
  });
});

it("a file is appended to and edited once, wherever the process dies", async () => {
  await survives({
    differences: () => ({
      backend: calling(
        [write({ path: "log", content: "a b\n" })],
        [write({ path: "log", content: "a c\n", append: true })],
        [edit({ path: "log", old_text: "a b", new_text: "a b a b" })],
      ).backend,
      agent: { abilities: { files: true } },
    }),
    messages: [inbound("om_crash", "please")],
    check: async (world) => {
      expect(await filesOf(world)).toEqual([["log", "a b a b\na c\n"]]);
      expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([false, false, false]);
    },
  });
});

it("a file is deleted wherever the process dies, and the call that removed it never says that there was none", async () => {
  const said = new Set<unknown>();
  await survives({
    differences: () => ({
      backend: calling([write({ path: "log", content: "a" })], [remove({ path: "log" })]).backend,
      agent: { abilities: { files: true } },
    }),
    messages: [inbound("om_gone", "please")],
    everyPoint: true,
    check: async (world) => {
      expect(await filesOf(world)).toEqual([]);
      const [text, isError] = (await resultsIn(world)).at(-1) ?? [];
      expect(isError).toBe(false);
      said.add(text);
    },
  });
  // The second one after a crash between the removal and what it had to say.
  expect([...said].sort()).toEqual(["There is no file log now.", "log is gone."]);
});

it("a change that was not confirmed may have taken effect; what only reads may be tried again", async () => {
  const world = newWorld();
  const lost = async (): Promise<never> => await Promise.reject(new Error("the answer is lost"));
  const files = replaced(world.files, {
    change: async (...given) => {
      await world.files.change(...given);
      return await lost();
    },
    read: lost,
  });
  await turn(world, [write({ path: "old", content: "b" })]);
  const { backend } = calling(
    [write({ path: "log", content: "a", append: true })],
    [remove({ path: "old" })],
    [read({ path: "log" })],
  );
  await append(world, inbound("om_lost", "please"));
  await settle(world, { backend, agent: { abilities: { files: true } }, services: { files } });
  expect(await filesOf(world)).toEqual([["log", "a"]]);
  expect((await resultsIn(world)).slice(1).map(([text]) => text)).toEqual([
    expect.stringContaining("It may have taken effect"),
    expect.stringContaining("It may have taken effect"),
    expect.stringContaining("Try again later"),
  ]);
});

describe("a call that still runs here when another one wakes its turn", () => {
  /** Two runs of the turn wait for it; `deliver` may fail. */
  async function woken(
    deliver: (give: () => Promise<unknown>) => Promise<unknown> = async (give) => await give(),
  ) {
    const world = holding(newWorld(), "late");
    const gate = Promise.withResolvers<void>();
    const counted = { changes: 0 };
    const files = replaced(world.files, {
      change: async (...given) => {
        counted.changes += 1;
        if (counted.changes === 1) await gate.promise;
        return await world.files.change(...given);
      },
    });
    const { store } = world;
    const delivering = replaced(store, {
      deliver: (async (...given: Parameters<typeof store.deliver>) =>
        await deliver(async () => await store.deliver(...given))) as typeof store.deliver,
    });
    const { backend } = calling([write({ path: "log", content: "a" }), "look"]);
    const differences = {
      backend,
      agent: { abilities: { files: true } },
      services: { files, store: delivering },
    };
    const run = runnerOf(world, differences);
    const { signal } = new AbortController();
    await append(world, inbound("om_slow", "please"));
    const first = run({ v: 1, session, gen: world.wakes.shift() ?? 0 }, signal);
    await expect
      .poll(async () => (await store.summary(session)).state, { timeout: 60_000 })
      .toBe("suspended");
    await runTools(world);
    const gen = world.wakes.shift() ?? expect.fail("nothing wakes the turn");
    const second = run({ v: 1, session, gen }, signal);
    await expect
      .poll(async () => (await store.summary(session)).state, { timeout: 60_000 })
      .toBe("suspended");
    gate.resolve();
    return { world, counted, first, second, gen, run, differences };
  }

  it("is not begun again", async () => {
    const { world, counted, first, second, differences } = await woken();
    await Promise.all([first, second]);
    await settle(world, differences);
    expect(counted.changes).toBe(1);
    expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([false, false]);
  });

  it("is handed out again where its answer could not be stored", async () => {
    let failures = 1;
    const { world, first, second, gen, run, differences } = await woken(async (give) => {
      failures -= 1;
      return failures >= 0
        ? await Promise.reject(new Error("Connection is closed."))
        : await give();
    });
    // The queue repeats the job of the run that has the turn by now.
    expect(await Promise.all([first, second])).toEqual(["requeue", "requeue"]);
    await run({ v: 1, session, gen }, new AbortController().signal);
    await settle(world, differences);
    expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([false, false]);
  });
});
