import type { EventOf } from "@larkline/protocol/event";
import { readResultName } from "@larkline/protocol/tool";
import { streamFramesOf } from "@larkline/protocol/views/stream-frame";
import { keepResult } from "@larkline/store/runners";
import { describe, expect, it } from "vitest";
import { calling, eventsOf, resultsIn, type Wanted } from "./approval-world.fixture.ts";
import { append, inbound, newWorld, settle, type World } from "./turn-world.fixture.ts";

// A result has room for 50,000 characters in these turns.
const large = Array.from({ length: 20_000 }, (_, index) => `line ${index}\n`).join("");

async function run(world: World, ...batches: Wanted[][]): Promise<void> {
  await append(world, inbound("om_1", "please"));
  await settle(world, { backend: calling(...batches).backend, agent: { reply: "card" } });
}

async function toolResults(world: World): Promise<EventOf<"tool_result">[]> {
  return (await eventsOf(world)).filter((event) => event.type === "tool_result");
}

/** A world whose tool answers with a large text, after one turn with it. */
async function withLargeResult() {
  const world = newWorld();
  world.outcomeOf = () => ({ ok: true, result: large });
  await run(world, ["echo"]);
  const [event] = await toolResults(world);
  return { world, handle: event?.storedPath ?? "" };
}

/** What another turn of the session reads with this handle. */
async function read(world: World, input: object): Promise<[text: string, isError: boolean]> {
  await append(world, inbound(`om_${Math.random()}`, "read on"));
  await settle(world, { backend: calling([{ name: readResultName, arguments: input }]).backend });
  return (await resultsIn(world)).at(-1) ?? ["", false];
}

describe("a result that is too large for the conversation", () => {
  it("EE-40: is kept as a whole, and the model gets its beginning, its end and a handle", async () => {
    const { world, handle } = await withLargeResult();
    expect(await toolResults(world)).toMatchObject([
      { truncated: true, storedPath: expect.stringMatching(/^res_/) },
    ]);
    const [[text, isError] = ["", true]] = await resultsIn(world);
    expect(isError).toBe(false);
    expect(text.length).toBeLessThan(51_000);
    expect(text).toMatch(/^line 0\nline 1\n/);
    expect(text).toMatch(/line 19998\nline 19999\n$/);
    expect(text).toContain(`${readResultName}, handle "${handle}"`);
  });

  it("EE-40: leaves no trace of storing where it is small", async () => {
    const world = newWorld();
    await run(world, ["echo"]);
    expect(await toolResults(world)).toMatchObject([{ truncated: false, storedPath: "" }]);
  });

  it("EE-41: tells the model alone where it is: neither a frame nor a card says it", async () => {
    const { world, handle } = await withLargeResult();
    expect(handle).not.toBe("");
    expect(world.sent[0]?.view?.tools).toMatchObject([
      { name: "echo", output: expect.stringContaining("line 0") },
    ]);
    expect(JSON.stringify(world.sent[0]?.view?.tools).includes(handle)).toBe(false);
    await read(world, { handle });
    // What the model itself says of it is its own affair; this one repeats everything.
    const frames = (await eventsOf(world))
      .flatMap(streamFramesOf)
      .filter(({ type }) => type.startsWith("tool_"));
    expect(frames.map(({ type }) => type)).toEqual([
      "tool_call",
      "tool_result",
      "tool_call",
      "tool_result",
    ]);
    expect(JSON.stringify(frames).includes(handle)).toBe(false);
  });

  it("is read on page by page, until its end", async () => {
    const { world, handle } = await withLargeResult();
    let offset: number | undefined = 0;
    let whole = "";
    while (offset !== undefined) {
      const [text] = await read(world, { handle, offset });
      const [, page = "", next] =
        /^([^]*)\n\[Characters \d+ to \d+ of \d+; (?:go on with offset (\d+)|this is the end)\.\]$/.exec(
          text,
        ) ?? [];
      expect(page.length).toBeLessThanOrEqual(20_000);
      whole += page;
      offset = next === undefined ? undefined : Number(next);
    }
    expect(whole).toBe(large);
  });

  it("is cut, and the turn continues, when it cannot be kept", async () => {
    const world = newWorld();
    world.outcomeOf = () => ({ ok: true, result: large });
    world.resultStores.blobs.put = async () => await Promise.reject(new Error("full"));
    await run(world, ["echo"]);
    expect(await toolResults(world)).toMatchObject([
      { truncated: true, storedPath: "", isError: false },
    ]);
    expect((await resultsIn(world))[0]?.[0]).toMatch(/^line 0\n[^]*\[Result cut off: /);
    expect(world.sent).toHaveLength(1);
  });
});

describe("reading a stored result", () => {
  it("with an unknown handle, or one of another session, is an error", async () => {
    const { world, handle } = await withLargeResult();
    const unknown = [expect.stringContaining("no stored result"), true];
    expect(await read(world, { handle: `${handle}x` })).toEqual(unknown);
    const other = await keepResult(world.resultStores, "cli_app.oc_2", large);
    expect(await read(world, { handle: other.handle })).toEqual(unknown);
  });

  it("with arguments that do not fit is an error that says which", async () => {
    const { world, handle } = await withLargeResult();
    expect(await read(world, { handle, offset: -1 })).toEqual([
      expect.stringMatching(/do not fit: .*offset/),
      true,
    ]);
    expect(await read(world, { offset: 0 })).toEqual([
      expect.stringMatching(/do not fit: .*handle/),
      true,
    ]);
  });

  it("beyond the end is empty, and says so", async () => {
    const { world, handle } = await withLargeResult();
    const [text, isError] = await read(world, { handle, offset: 10_000_000 });
    expect(isError).toBe(false);
    expect(text).toContain("this is the end");
  });
});
