import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { deadline, pause, systemClock, systemRandom, withDeadline, type Clock } from "./clock.ts";

/** A clock whose time stands still; its timers ring when the test says so. */
function stillClock() {
  const timers = new Set<() => void>();
  const clock: Clock = {
    ...systemClock,
    after: (_ms, work) => {
      timers.add(work);
      return () => timers.delete(work);
    },
    every: (_ms, work) => {
      timers.add(work);
      return () => timers.delete(work);
    },
  };
  return { clock, timers, ring: () => [...timers].forEach((work) => work()) };
}

describe("a deadline", () => {
  it("lets work that is done in time through, its failures too, and leaves no timer behind", async () => {
    const { clock, timers } = stillClock();
    expect(await withDeadline(clock, Promise.resolve("done"), 100)).toBe("done");
    await expect(withDeadline(clock, Promise.reject(new Error("broken")), 100)).rejects.toThrow(
      "broken",
    );
    expect(timers.size).toBe(0);
  });

  it("gives up work that takes longer", async () => {
    const { clock, ring } = stillClock();
    const late = withDeadline(clock, new Promise<never>(() => undefined), 100);
    ring();
    await expect(late).rejects.toThrow("no answer within 100 ms");
  });
});

describe("a deadline of a process that was busy", () => {
  it("counts an answer that had arrived before the process could read it", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const client = connect(
      typeof address === "object" && address !== null ? address.port : 0,
      "127.0.0.1",
    );
    const both = Promise.all([once(server, "connection"), once(client, "connect")]);
    const [[socket]] = (await both) as [[Socket], unknown[]];
    const answer = withDeadline(systemClock, once(client, "data"), 20);
    setImmediate(() => {
      socket.end("in time");
      const untilMs = performance.now() + 100;
      while (performance.now() < untilMs); // the answer arrives, and the deadline passes
    });
    await expect(answer).resolves.toHaveLength(1);
    server.close();
  });
});

describe("a deadline as a signal", () => {
  it("aborts once, as that of AbortSignal.timeout does, when its time is over", () => {
    const { clock, timers, ring } = stillClock();
    const signal = deadline(clock, 100);
    expect(signal.aborted).toBe(false);
    ring();
    expect(signal.reason).toMatchObject({
      name: "TimeoutError",
      message: "The operation was aborted due to timeout",
    });
    expect(timers.size).toBe(0);
  });

  it("aborts before with one of the other signals", () => {
    const leaving = new AbortController();
    const signal = deadline(stillClock().clock, 100, new AbortController().signal, leaving.signal);
    leaving.abort("left");
    expect(signal.reason).toBe("left");
  });
});

describe("a pause", () => {
  it("ends when its time is over", async () => {
    const { clock, ring } = stillClock();
    let isOver = false;
    const pausing = pause(clock, 100).then(() => (isOver = true));
    await Promise.resolve();
    expect(isOver).toBe(false);
    ring();
    await pausing;
  });

  it("ends with its signal, at once when that has been given before, and leaves no timer behind", async () => {
    const { clock, timers } = stillClock();
    const stopping = new AbortController();
    const pausing = pause(clock, 100, stopping.signal);
    stopping.abort();
    await pausing;
    await pause(clock, 100, stopping.signal);
    expect(timers.size).toBe(0);
  });
});

it("the clock of the system calls once, or again and again, until it is stopped", async () => {
  let calls = 0;
  const { promise: twice, resolve } = Promise.withResolvers<void>();
  const stop = systemClock.every(1, () => (++calls === 2 ? resolve() : undefined));
  await twice;
  stop();
  const startedMs = systemClock.monotonic();
  await new Promise<void>((ring) => systemClock.after(5, ring));
  expect(systemClock.monotonic() - startedMs).toBeGreaterThanOrEqual(4);
  const unwanted = systemClock.after(0, () => (calls = 100));
  unwanted();
  await new Promise<void>((ring) => systemClock.after(5, ring));
  expect(calls).toBeLessThan(100);
});

it("ids of the system differ and fit into URLs", () => {
  expect(systemRandom.id()).toMatch(/^[\w-]{22}$/);
  expect(systemRandom.id()).not.toBe(systemRandom.id());
  expect(systemRandom.uuid()).not.toBe(systemRandom.uuid());
});
