import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { EngineError } from "@larkline/protocol/error";
import { afterEach, describe, expect, it, vi } from "vitest";
import { confinedFork } from "./confinement.ts";
import type { AttachedFile, Extraction } from "./extraction.ts";
import { expandingPdf } from "./pdf.fixture.ts";
import { childrenOf, isAlive } from "./process-table.fixture.ts";
import {
  createTextExtractor,
  type TextExtractor,
  type TextExtractorOptions,
} from "./text-extractor.ts";

const patience = { timeout: 60_000, interval: 20 };
const text = { bytes: Buffer.from("text"), name: "a.txt" };
/** Keeps a reader busy for seconds without ever coming up for air. */
const slow = { bytes: expandingPdf(60), name: "slow.pdf" };
/** Lets it take as long, and as much, as the test wants, also where the test itself stands still meanwhile. */
const unhurried = { cpuMs: 600_000, deadlineMs: 600_000, memoryMb: 2_000 };
/** Some tens of seconds of work in few bytes. */
const hostile = { bytes: expandingPdf(150), name: "hostile.pdf" };

let opened: TextExtractor | undefined;

function open(options: TextExtractorOptions = {}): TextExtractor {
  opened = createTextExtractor(options);
  return opened;
}
afterEach(async () => {
  await opened?.close();
  expect(readers()).toEqual([]);
});

/** Other children may be left of the tests before, such as those of tools, which end in their own time. */
const readers = (): number[] => childrenOf(process.pid).filter(isReader);

function isReader(id: number): boolean {
  try {
    return readFileSync(`/proc/${id}/cmdline`, "utf8").includes("reading-process");
  } catch {
    return false; // it has ended
  }
}

async function waitForReader(other: (id: number) => boolean = () => true): Promise<number> {
  return await vi.waitFor(() => {
    const [id] = readers().filter(other);
    if (id === undefined) throw new Error("no reader yet");
    return id;
  }, patience);
}

describe("reader processes", () => {
  it("one process reads file after file", async () => {
    const extractor = open();
    await extractor.extract(text);
    const [first] = readers();
    await extractor.extract(text);
    expect(readers()).toEqual([first]);
  });

  it("a process is replaced after fifty files", async () => {
    const extractor = open();
    await extractor.extract(text);
    const [first] = readers();
    for (let i = 0; i < 50; i += 1) {
      expect(await extractor.extract(text)).toMatchObject({ state: "ready" });
    }
    // The killed process may need a moment to end.
    await vi.waitFor(() => expect(readers()).not.toContain(first), patience);
    expect(readers()).toHaveLength(1);
  });

  it("files are read by as many processes at once as allowed, and by no more", async () => {
    const extractor = open({ processes: 2 });
    const answers = await Promise.all(
      Array.from(
        { length: 12 },
        async (_, i) => await extractor.extract({ bytes: Buffer.from(`text ${i}`), name: "a" }),
      ),
    );
    expect(answers.map((answer) => "text" in answer && answer.text)).toEqual(
      answers.map((_, i) => `text ${i}`),
    );
    expect(readers()).toHaveLength(2);
  });

  it("a slow file does not stop the others", async () => {
    const extractor = open({ ...unhurried, processes: 2 });
    const stop = new AbortController();
    const slowAnswer = extractor.extract(slow, stop.signal).catch((error: unknown) => error);
    expect(await extractor.extract(text)).toMatchObject({ text: "text" });
    stop.abort(new Error("enough"));
    expect(await slowAnswer).toEqual(new Error("enough"));
  });

  it("a person's files that take their time do not hold up the file of another", async () => {
    const extractor = open({ ...unhurried, processes: 2 });
    const stop = new AbortController();
    const order: string[] = [];
    const read = async (owner: string, file: AttachedFile): Promise<Extraction> =>
      await extractor.extract(file, stop.signal, owner).finally(() => order.push(owner));
    const endless = read("ann", slow).catch((error: unknown) => error);
    process.kill(await waitForReader(), "SIGSTOP"); // takes its time, whatever the machine does
    const behind = [1, 2].map(async () => await extractor.extract(text, undefined, "ann"));
    const anns = behind.map(async (reading) => await reading.finally(() => order.push("ann")));
    expect(await read("bob", text)).toMatchObject({ text: "text" });
    expect(order).toEqual(["bob"]);
    stop.abort(new Error("enough"));
    expect(await endless).toEqual(new Error("enough"));
    for (const answer of await Promise.all(anns)) expect(answer).toMatchObject({ text: "text" });
  });

  it("a file has so much CPU time; its process is killed and replaced", async () => {
    const extractor = open({ processes: 1, cpuMs: 1_500, deadlineMs: 600_000 });
    const answer = extractor.extract(hostile);
    const first = await waitForReader();
    expect(await answer).toMatchObject({
      state: "failed",
      detail: "Reading the file took too long.",
    });
    expect(await extractor.extract(text)).toMatchObject({ text: "text" });
    expect(readers()).not.toContain(first);
  });

  it("a file that takes too long is given up, its process killed and replaced", async () => {
    const extractor = open({ ...unhurried, deadlineMs: 2_000 });
    const answer = extractor.extract({ bytes: expandingPdf(1), name: "slow.pdf" });
    const first = await waitForReader();
    process.kill(first, "SIGSTOP"); // takes its time, whatever the machine does
    expect(await answer).toEqual({
      state: "failed",
      mediaType: "application/pdf",
      detail: "Reading the file took too long.",
    });
    // On a busy machine the start of the next process alone may take the deadline.
    await vi.waitFor(
      async () => expect(await extractor.extract(text)).toMatchObject({ text: "text" }),
      patience,
    );
    await vi.waitFor(() => expect(isAlive(first)).toBe(false), patience);
  });

  it("a process that was killed while idle is replaced, and no caller notices", async () => {
    const extractor = open();
    await extractor.extract(text);
    const first = await waitForReader();
    process.kill(first, "SIGKILL");
    expect(await extractor.extract(text)).toMatchObject({ text: "text" });
    expect(readers()).not.toContain(first);
  });

  it("a file whose process is killed gets one more, and is then given up", async () => {
    const answer = open(unhurried).extract(slow);
    const first = await waitForReader();
    process.kill(first, "SIGKILL");
    process.kill(await waitForReader((id) => id !== first), "SIGKILL");
    expect(await answer).toMatchObject({ state: "failed", detail: "The file cannot be read." });
  });

  it("an abort ends the reading and its process, and frees its place", async () => {
    const extractor = open(unhurried);
    const stop = new AbortController();
    const answer = extractor.extract(slow, stop.signal).catch((error: unknown) => error);
    const first = await waitForReader();
    stop.abort(new Error("stopped by a person"));
    expect(await answer).toEqual(new Error("stopped by a person"));
    await vi.waitFor(() => expect(isAlive(first)).toBe(false), patience);
    expect(await extractor.extract(text)).toMatchObject({ text: "text" });
  });

  it("an abort before the start, or while waiting, reads nothing", async () => {
    const extractor = open({ ...unhurried, processes: 1 });
    await expect(extractor.extract(text, AbortSignal.abort(new Error("early")))).rejects.toThrow(
      "early",
    );
    expect(readers()).toEqual([]);
    const stop = new AbortController();
    const running = extractor.extract(slow, stop.signal).catch((error: unknown) => error);
    const waiting = new AbortController();
    const second = extractor.extract(text, waiting.signal).catch((error: unknown) => error);
    waiting.abort(new Error("gone"));
    expect(await second).toEqual(new Error("gone"));
    stop.abort(new Error("enough"));
    await running;
    expect(await extractor.extract(text)).toMatchObject({ text: "text" });
  });

  it("close ends every process, abandons what runs and waits, and can be called again", async () => {
    const extractor = open({ ...unhurried, processes: 1 });
    const running = extractor.extract(slow).catch((error: unknown) => error);
    const waiting = extractor.extract(text).catch((error: unknown) => error);
    await waitForReader();
    await extractor.close();
    expect(readers()).toEqual([]);
    for (const error of [await running, await waiting]) {
      expect(error).toBeInstanceOf(EngineError);
      expect(error).toMatchObject({ retryable: true });
    }
    await expect(extractor.extract(text)).rejects.toThrow("closed");
    await extractor.close();
  });

  it("readers, idle and busy, end with a parent that is killed", async () => {
    const parent = fork(fileURLToPath(new URL("./parent.fixture.ts", import.meta.url)));
    await once(parent, "message");
    const orphans = childrenOf(parent.pid ?? 0);
    expect(orphans).toHaveLength(2);
    const ended = once(parent, "exit");
    parent.kill("SIGKILL");
    await ended;
    await vi.waitFor(() => expect(orphans.filter(isAlive)).toEqual([]), patience);
  });
});

describe("confinement", () => {
  it("leaves a hostile file no environment, files, network, threads, processes or code from text", async () => {
    const server = createServer((_, response) => response.end("a page")).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const port = typeof address === "object" ? String(address?.port) : "";
    const program = fileURLToPath(new URL("./confined-probe.fixture.ts", import.meta.url));
    const probe = fork(program, [port], confinedFork({ memoryMb: 256 }));
    const ended = once(probe, "exit");
    const [report] = await once(probe, "message");
    await new Promise((resolve) => server.close(resolve));
    expect(report).toEqual({
      outcome: {
        "read a file of the machine": true,
        "list the checkout": true,
        "read another package": true,
        "read the code of the worker": true,
        "write a file": true,
        "write into its own code": true,
        "start a process": true,
        "start a thread": true,
        "run code from text": true,
        "open a connection": true,
        "write a file as a database": true,
        "signal another process": true,
        "wait for connections": true,
        "look up a name": true,
        "look up a name elsewhere": true,
        "send a datagram": true,
        "fetch a page": true,
      },
      environment: [],
    });
    probe.kill();
    await ended; // it counts among the readers
  });
});
