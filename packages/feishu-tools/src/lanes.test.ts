import { describe, expect, it } from "vitest";
import { Lanes } from "./lanes.ts";

const never = new AbortController().signal;

describe("lanes", () => {
  it("let people take turns at one object, and do not hold up others", async () => {
    const lanes = new Lanes();
    const order: string[] = [];
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    const work = async (name: string) =>
      await lanes.run("table", name.slice(0, 3), never, async () => {
        if (name === "ann1") await gate;
        order.push(name);
      });
    const all = ["ann1", "ann2", "ann3", "bob1"].map(work);
    await lanes.run("other", "bob", never, async () => void order.push("elsewhere"));
    open();
    await Promise.all(all);
    expect(order).toEqual(["elsewhere", "ann1", "ann2", "bob1", "ann3"]);
  });

  it("go on when one that waits is cancelled, and when one fails", async () => {
    const lanes = new Lanes();
    const stop = new AbortController();
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    const first = lanes.run("table", "ann", never, async () => {
      await gate;
      throw new Error("broken");
    });
    const second = lanes.run("table", "ann", stop.signal, async () => "never");
    const third = lanes.run("table", "bob", never, async () => "done");
    stop.abort(new Error("cancelled"));
    await expect(second).rejects.toThrow("cancelled");
    open();
    await expect(first).rejects.toThrow("broken");
    await expect(third).resolves.toBe("done");
  });
});
