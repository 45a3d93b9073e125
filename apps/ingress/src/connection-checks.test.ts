import type { LongConnectionState } from "@larkline/feishu";
import { describe, expect, it } from "vitest";
import { systemClock } from "@larkline/protocol/clock";
import { ConnectionChecks, type ConnectedBot } from "./long-connection.ts";

function bot(
  name: string,
  first?: LongConnectionState,
): ConnectedBot & { now(state: LongConnectionState): void } {
  let state = first;
  return {
    name,
    connection: first === undefined ? undefined : { state: () => state ?? first },
    now: (next) => {
      state = next;
    },
  };
}

function checking(bots: readonly ConnectedBot[], now: () => number) {
  const checks = new ConnectionChecks({ ...systemClock, monotonic: now }, bots);
  return () => checks.states();
}

describe("long connections in /ready", () => {
  it("hold a new process back until all are there, for a while", () => {
    let nowMs = 0;
    const [one, other] = [bot("default", "connecting"), bot("desk", "connecting")];
    const check = checking([one, other], () => nowMs);
    expect(check()).toEqual({ longConnection: false, "longConnection.desk": false });
    one.now("connected");
    expect(check()).toEqual({ longConnection: true, "longConnection.desk": false });
    nowMs = 31_000;
    expect(check()).toEqual({ longConnection: true, "longConnection.desk": "lost" });
  });

  it("that are lost later do not stop the other bots", () => {
    const [one, other] = [bot("default", "connected"), bot("desk", "connected")];
    const check = checking([one, other, bot("hook")], () => 0);
    expect(check()).toEqual({ longConnection: true, "longConnection.desk": true });
    one.now("reconnecting");
    other.now("reconnecting");
    expect(check()).toEqual({ longConnection: "lost", "longConnection.desk": "lost" });
  });

  it("of the only bots there are make the process useless when all are gone", () => {
    const [one, other] = [bot("default", "connected"), bot("desk", "connected")];
    const check = checking([one, other], () => 60_000);
    check();
    one.now("reconnecting");
    expect(check()).toEqual({ longConnection: "lost", "longConnection.desk": true });
    other.now("reconnecting");
    expect(check()).toEqual({ longConnection: false, "longConnection.desk": false });
  });
});
